package none

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/internal/linktest"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/uring/drivertest"
)

// Payloads recorded between real daemons and clients.
const (
	adminToMon = "0a080000000500000061646d696e0000000000000000"
	adminToOSD = "01080000000500000061646d696e1310000000000000"
	osd0ToOSD  = "01040000000100000030" + "0510000000000000"
)

var admin = wire.EntityName{Type: wire.Client, ID: "admin"}

var unhex = linktest.Unhex

func request(t *testing.T, c *Client, peer wire.EntityType) []byte {
	t.Helper()
	x, err := c.Start(t.Context(), peer)
	drivertest.Must(t, err)
	m, modes, p, err := x.Request(t.Context())
	if err != nil || m != auth.None || fmt.Sprint(modes) != "[crc]" {
		t.Fatal(m, modes, err)
	}
	return p
}

func TestRequestMatchesRecordedPayloads(t *testing.T) {
	for _, c := range []struct {
		name string
		id   uint64
		peer wire.EntityType
		want string
	}{
		{"client.admin", 0, wire.Mon, adminToMon},
		{"client.admin", 0x1013, wire.OSD, adminToOSD},
		{"osd.0", 0x1005, wire.OSD, osd0ToOSD},
		{"mon.a", 0, wire.Mon, "01010000000100000061" + "0000000000000000"},
		{"osd.0", 0x1005, wire.Mon, "0a040000000100000030" + "0510000000000000"},
	} {
		name, err := wire.ParseEntityName(c.name)
		drivertest.Must(t, err)
		client := NewClient(name)
		client.SetGlobalID(c.id)
		if got := request(t, client, c.peer); !bytes.Equal(got, unhex(t, c.want)) {
			t.Errorf("%s to %v: %x, want %s", c.name, c.peer, got, c.want)
		}
	}
}

func TestGlobalIDFromMonitorIsPresentedToServices(t *testing.T) {
	c := NewClient(admin)
	x, _ := c.Start(t.Context(), wire.Mon)
	res, err := x.Done(t.Context(), 4115, auth.CRC, nil)
	if err != nil || res.GlobalID != 4115 || res.Entity != admin || res.Method != auth.None || res.Mode != auth.CRC || res.SessionKey != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := request(t, c, wire.OSD); !bytes.Equal(got, unhex(t, adminToOSD)) {
		t.Errorf("got %x", got)
	}
	// What a service sends back does not change the identity.
	x, _ = c.Start(t.Context(), wire.OSD)
	if _, err := x.Done(t.Context(), 99, auth.CRC, nil); err != nil || c.GlobalID() != 4115 {
		t.Errorf("global id %d, %v", c.GlobalID(), err)
	}
}

func TestServerByFormOfThePayload(t *testing.T) {
	mon := func() *Server { return NewServer(ServerConfig{Monitor: true}) }
	osd := func() *Server { return NewServer(ServerConfig{}) }
	with := func(form byte, tail string) []byte {
		return append(append([]byte{form}, unhex(t, adminToOSD)[1:]...), tail...)
	}
	long := func(n int) []byte {
		p := append([]byte{formMon}, wire.EntityName{Type: wire.Client, ID: strings.Repeat("x", n)}.AppendTo(nil)...)
		return append(p, make([]byte, 8)...)
	}
	for _, c := range []struct {
		name   string
		server *Server
		p      []byte
		id     uint64
		errno  int32
	}{
		{"mon assigns", mon(), unhex(t, adminToMon), firstGlobalID + 1, 0},
		{"mon keeps the proposed id", mon(), with(10, ""), 0x1013, 0},
		{"mon takes the whole range", mon(), with(19, ""), 0x1013, 0},
		{"mon takes an authorizer", mon(), with(1, ""), 0, 0},
		{"mon takes the last authorizer", mon(), with(9, ""), 0, 0},
		{"mon refuses form 0", mon(), with(0, ""), 0, auth.EACCES},
		{"mon refuses form 20", mon(), with(20, ""), 0, auth.EACCES},
		{"mon refuses nothing", mon(), nil, 0, auth.EACCES},
		{"osd takes an authorizer", osd(), with(1, ""), 0x1013, 0},
		{"osd takes anything", osd(), with(0, "tail"), 0x1013, 0},
		{"osd takes a mon request", osd(), with(10, ""), 0x1013, 0},
		{"osd refuses nothing", osd(), nil, 0, auth.EACCES},
		{"osd refuses a name of 60 000 bytes", osd(), long(60_000), 0, auth.EACCES},
		{"mon refuses it", mon(), long(60_000), 0, auth.EACCES},
	} {
		x, err := c.server.Start(t.Context(), wire.Client, auth.None, auth.CRC)
		drivertest.Must(t, err)
		reply, res, err := x.Handle(t.Context(), c.p)
		if c.errno != 0 {
			if res != nil || auth.Errno(err) != c.errno {
				t.Errorf("%s: %+v, %v", c.name, res, err)
			}
			continue
		}
		if err != nil || len(reply) != 0 || res.GlobalID != c.id || res.Entity != admin || res.Method != auth.None || res.Mode != auth.CRC {
			t.Errorf("%s: %+v, reply %x, %v", c.name, res, reply, err)
		}
	}
}

func TestServerRefusesEveryTruncation(t *testing.T) {
	full := unhex(t, adminToMon)
	for n := range full {
		for _, monitor := range []bool{true, false} {
			x, _ := NewServer(ServerConfig{Monitor: monitor}).Start(t.Context(), wire.Client, auth.None, auth.CRC)
			if _, res, err := x.Handle(t.Context(), full[:n]); res != nil || auth.Errno(err) != auth.EACCES {
				t.Errorf("%d bytes: %+v, %v", n, res, err)
			}
		}
	}
}

func TestServerAnnouncesModesItCannotHave(t *testing.T) {
	for monitor, want := range map[bool]string{true: "[crc] [secure crc]", false: "[crc] [crc secure]"} {
		allowed, announced := NewServer(ServerConfig{Monitor: monitor}).Modes(t.Context(), wire.Client, auth.None)
		if got := fmt.Sprint(allowed, announced); got != want {
			t.Errorf("monitor %v: %s, want %s", monitor, got, want)
		}
	}
	if _, err := NewServer(ServerConfig{}).Start(t.Context(), wire.Client, auth.Cephx, auth.CRC); !errors.Is(err, auth.ErrNoMethod) {
		t.Error(err)
	}
}

func TestAssignGlobalIDDecides(t *testing.T) {
	s := NewServer(ServerConfig{Monitor: true, AssignGlobalID: func(_ context.Context, name wire.EntityName, proposed uint64) (uint64, error) {
		if proposed != 0 {
			return 0, &auth.Refused{Errno: auth.EPERM, Reason: "no reclaim"}
		}
		return 7, nil
	}})
	x, _ := s.Start(t.Context(), wire.Client, auth.None, auth.CRC)
	if _, res, err := x.Handle(t.Context(), unhex(t, adminToMon)); err != nil || res.GlobalID != 7 {
		t.Errorf("%+v, %v", res, err)
	}
	reclaim := unhex(t, adminToOSD)
	reclaim[0] = formMon
	if _, _, err := x.Handle(t.Context(), reclaim); auth.Errno(err) != auth.EPERM {
		t.Error(err)
	}
}

func TestClientGivesUpAfterBadMethod(t *testing.T) {
	x, _ := NewClient(admin).Start(t.Context(), wire.Mon)
	if err := x.BadMethod(t.Context(), auth.None, auth.EACCES, []auth.Method{auth.None}, nil); !errors.Is(err, &auth.Refused{Errno: auth.EACCES}) {
		t.Error(err)
	}
	if _, err := x.ReplyMore(t.Context(), nil); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func TestConcurrentUseGivesDistinctGlobalIDs(t *testing.T) {
	s, c := NewServer(ServerConfig{Monitor: true}), NewClient(admin)
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			x, _ := s.Start(t.Context(), wire.Client, auth.None, auth.CRC)
			_, res, err := x.Handle(t.Context(), unhex(t, adminToMon))
			if err != nil {
				t.Error(err)
				return
			}
			y, _ := c.Start(t.Context(), wire.Mon)
			if _, err := y.Done(t.Context(), res.GlobalID, auth.CRC, nil); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[res.GlobalID] = true
		})
	}
	wg.Wait()
	if len(seen) != 64 || !seen[c.GlobalID()] {
		t.Errorf("%d distinct ids, client has %d", len(seen), c.GlobalID())
	}
}

func FuzzServer(f *testing.F) {
	f.Add(true, unhex(f, adminToMon))
	f.Add(false, unhex(f, adminToOSD))
	f.Fuzz(func(t *testing.T, monitor bool, p []byte) {
		x, _ := NewServer(ServerConfig{Monitor: monitor}).Start(t.Context(), wire.Client, auth.None, auth.CRC)
		_, res, err := x.Handle(t.Context(), p)
		if (res == nil) == (err == nil) {
			t.Fatalf("%x: %+v, %v", p, res, err)
		}
	})
}

func ExampleClient() {
	client := NewClient(wire.EntityName{Type: wire.Client, ID: "admin"})
	server := NewServer(ServerConfig{Monitor: true})
	ctx := context.Background()

	x, _ := client.Start(ctx, wire.Mon)
	method, modes, payload, _ := x.Request(ctx)
	y, _ := server.Start(ctx, wire.Client, method, modes[0])
	_, res, _ := y.Handle(ctx, payload)
	fmt.Println(res.Entity, res.GlobalID)
	// Output: client.admin 4097
}
