package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/echotest"
	"github.com/ringmsgr/ringmsgr/bench/internal/load"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

func started[S interface{ Close() error }](t *testing.T, start func() (S, error)) S {
	t.Helper()
	s, err := start()
	clitest.Must(t, err)
	t.Cleanup(func() { clitest.Must(t, s.Close()) })
	return s
}

// dial connects to a floor. Bytes that get lost must not let the test hang.
func dial(t *testing.T, f *Floor) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp4", f.Addr().String())
	clitest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() }) // the server may have closed it
	clitest.Must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c
}

func newNet(t *testing.T, secure bool) *Listener {
	t.Helper()
	return started(t, func() (*Listener, error) { return NewNet(secure) })
}

func TestTheFloorEchoesMoreThanTheSocketsHold(t *testing.T) {
	f := started(t, NewFloor)
	c := dial(t, f)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 4<<20) // 64 MiB
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		written <- err
	}()
	got := make([]byte, len(sent))
	_, err := io.ReadFull(c, got)
	clitest.Must(t, errors.Join(err, <-written))
	if !bytes.Equal(got, sent) {
		t.Fatal("other bytes came back")
	}
	if f.Syscalls() == 0 {
		t.Error("no system calls counted")
	}
}

// A request in pieces comes back when its last byte is there, and not before; the
// next one may have begun with it.
func TestTheStoringFloorSendsWholeRequests(t *testing.T) {
	f := started(t, NewFloorStore)
	c := dial(t, f)
	var sent []byte
	for i, size := range []int{0, 64, 4096, storeLarge, 10, 3 << 20, storeAhead - requestRest, 1} {
		r := bytes.Repeat([]byte{byte(i + 1)}, requestRest+size)
		binary.LittleEndian.PutUint32(r[requestLength:], uint32(size))
		sent = append(sent, r...)
	}
	got := make([]byte, len(sent))
	written := make(chan error, 1)
	go func() {
		var err error
		for rest := sent; len(rest) > 0 && err == nil; {
			n := min(len(rest), 1+len(rest)%70000)
			_, err = c.Write(rest[:n])
			rest = rest[n:]
		}
		written <- err
	}()
	_, err := io.ReadFull(c, got)
	clitest.Must(t, errors.Join(err, <-written))
	if !bytes.Equal(got, sent) {
		t.Error("other bytes came back")
	}
	half := sent[:requestRest/2]
	_, err = c.Write(half)
	clitest.Must(t, err)
	clitest.Must(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	if n, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes of half a request came back, %v", n, err)
	}
}

func TestTheNetServerAnswersKeepalivesAndKeepsEverySegment(t *testing.T) {
	for _, secure := range []bool{false, true} {
		echotest.AnswersAndKeeps(t, newNet(t, secure).Addr(), secure)
	}
}

// The client is tested here because it needs servers.
// Matrix: BE-01
func TestTheLoadClientMeasuresBothServers(t *testing.T) {
	floor, plain, secure := started(t, NewFloor), newNet(t, false), newNet(t, true)
	store := started(t, NewFloorStore)
	for _, c := range []struct {
		addr        net.Addr
		raw, secure bool
	}{{floor.Addr(), true, false}, {store.Addr(), true, false}, {plain.Addr(), false, false}, {secure.Addr(), false, true}} {
		for _, o := range []load.Options{
			{Conns: 1, Depth: 1, Size: 64},
			{Conns: 5, Depth: 7, Size: 4096},
			{Conns: 3, Depth: 3, Size: 300000},
		} {
			o.Addr, o.Raw, o.Secure = c.addr.String(), c.raw, c.secure
			l, err := load.Open(t.Context(), o)
			clitest.Must(t, err)
			s := load.Slice{Warm: time.Millisecond, WarmMax: time.Minute, Window: 10 * time.Millisecond, WindowMax: time.Minute}
			for range 3 { // slices follow each other on the same connections
				began := time.Now()
				r, err := l.Run(s)
				if err != nil {
					t.Fatalf("%+v: %v", o, err)
				}
				open := uint64(o.Conns * o.Depth)
				// The window begins and ends in the middle of replies.
				if whole := r.Bytes / uint64(r.PerReply); max(whole, r.Latency.Count())-min(whole, r.Latency.Count()) > open {
					t.Errorf("%+v: bytes of %d replies, %d latencies", o, whole, r.Latency.Count())
				}
				if took, all := time.Since(began), r.Latency.Summary(); all.Max > cli.Microseconds(took+took/50) || all.Min <= 0 {
					t.Errorf("%+v: latencies %+v within %v", o, all, took)
				}
				if !r.Steady || r.Latency.Count() < open || r.Total < 2*open || r.Bytes == 0 || r.Window < s.Window {
					t.Fatalf("%+v: %+v, %d replies", o, r, r.Latency.Count())
				}
				if r.ClientCPU <= 0 || r.ServerCPU <= 0 {
					t.Fatalf("no CPU time: %+v", r)
				}
			}
			l.Close()
		}
	}
}

// The CPU time of the server is that of the process named, not of the client.
func TestTheLoadClientReadsTheClockOfTheServer(t *testing.T) {
	f := started(t, NewFloor)
	o := load.Options{Addr: f.Addr().String(), Raw: true, Conns: 1, Depth: 16, Size: 64, PID: clitest.Sleeper(t)}
	l, err := load.Open(t.Context(), o)
	clitest.Must(t, err)
	defer l.Close()
	r, err := l.Run(load.Slice{Warm: 10 * time.Millisecond, WarmMax: time.Minute, Window: 100 * time.Millisecond, WindowMax: time.Minute})
	clitest.Must(t, err)
	if r.ServerCPU > r.ClientCPU/10 {
		t.Errorf("a process that sleeps used %v, the client %v", r.ServerCPU, r.ClientCPU)
	}
}

func TestTheLoadClientReportsAServerThatCloses(t *testing.T) {
	addr := clitest.Listen(t, "tcp4", "127.0.0.1:0", func(net.Conn) {})
	l, err := load.Open(t.Context(), load.Options{Addr: addr, Raw: true, Conns: 1, Depth: 1, Size: 10})
	clitest.Must(t, err)
	defer l.Close()
	if _, err := l.Run(load.Slice{Window: time.Hour, WindowMax: time.Hour}); err == nil {
		t.Fatal("no error")
	}
}
