package auth_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// fake is a client and a server of one method, which it puts into its payloads.
type fake struct {
	method   auth.Method
	announce []auth.Mode
	startErr error
	wiped    *int
	refuse   error // BadMethod of the client
}

func (f fake) Methods(context.Context, wire.EntityType) []auth.Method {
	return []auth.Method{f.method}
}

func (f fake) Modes(context.Context, wire.EntityType, auth.Method) (allowed, announced []auth.Mode) {
	return []auth.Mode{auth.CRC}, f.announce
}

func (f fake) Start(_ context.Context, _ wire.EntityType, m auth.Method, _ auth.Mode) (auth.ServerExchange, error) {
	return f, f.startErr
}

func (f fake) Handle(context.Context, []byte) ([]byte, *auth.Result, error) {
	return nil, &auth.Result{Method: f.method}, nil
}

// dialler is the same as a client.
type dialler struct{ fake }

func (d dialler) Start(context.Context, wire.EntityType) (auth.ClientExchange, error) {
	return dialling(d), d.startErr
}

type dialling struct{ fake }

func (d dialling) Request(context.Context) (auth.Method, []auth.Mode, []byte, error) {
	return d.method, []auth.Mode{auth.CRC}, []byte(d.method.String()), nil
}

func (d dialling) BadMethod(_ context.Context, m auth.Method, result int32, methods []auth.Method, modes []auth.Mode) error {
	if d.refuse != nil {
		return d.refuse
	}
	return auth.BadMethod(m, result, methods, modes)
}

func (d dialling) ReplyMore(context.Context, []byte) ([]byte, error) { return nil, nil }

func (d dialling) Done(context.Context, uint64, auth.Mode, []byte) (*auth.Result, error) {
	return &auth.Result{Method: d.method}, nil
}

func (d dialling) Wipe() { *d.wiped++ }

func TestServersHandleEachMethodOfTheirElements(t *testing.T) {
	cephx, none := fake{method: auth.Cephx, announce: []auth.Mode{auth.Secure}}, fake{method: auth.None, announce: []auth.Mode{auth.Secure, auth.CRC}}
	other := fake{method: auth.Cephx, startErr: errors.New("must not be asked")}
	for _, c := range []struct {
		server auth.Server
		peer   wire.EntityType
		want   []auth.Method
	}{
		{auth.Servers{cephx, none}, wire.Client, []auth.Method{auth.Cephx, auth.None}},
		{auth.Servers{none, cephx, other}, wire.OSD, []auth.Method{auth.None, auth.Cephx}},
		{auth.Servers{cephx}, wire.Client, []auth.Method{auth.Cephx}},
		{auth.Servers{}, wire.Client, nil},
		{&auth.PerPeer{Types: map[wire.EntityType]auth.Server{wire.Client: auth.Servers{cephx, none}}, Default: cephx}, wire.Client, []auth.Method{auth.Cephx, auth.None}},
		{&auth.PerPeer{Types: map[wire.EntityType]auth.Server{wire.Client: auth.Servers{cephx, none}}, Default: cephx}, wire.OSD, []auth.Method{auth.Cephx}},
		{&auth.PerPeer{Types: map[wire.EntityType]auth.Server{wire.Client: nil}, Default: cephx}, wire.Client, nil},
		{&auth.PerPeer{Types: map[wire.EntityType]auth.Server{wire.Client: cephx}}, wire.OSD, nil},
		{&auth.PerPeer{}, wire.OSD, nil},
	} {
		if got := c.server.Methods(t.Context(), c.peer); !slices.Equal(got, c.want) {
			t.Errorf("%v: methods %v, want %v", c.peer, got, c.want)
		}
		for _, m := range []auth.Method{0, auth.None, auth.Cephx, 3} {
			x, err := c.server.Start(t.Context(), c.peer, m, auth.CRC)
			allowed, _ := c.server.Modes(t.Context(), c.peer, m)
			if !slices.Contains(c.want, m) {
				if !errors.Is(err, auth.ErrNoMethod) || len(allowed) > 0 {
					t.Errorf("%v with %v: %v, modes %v", c.peer, m, err, allowed)
				}
				continue
			}
			if err != nil || len(allowed) == 0 {
				t.Errorf("%v with %v: %v, modes %v", c.peer, m, err, allowed)
				continue
			}
			if _, res, err := x.Handle(t.Context(), nil); err != nil || res.Method != m {
				t.Errorf("%v with %v: handled by %+v, %v", c.peer, m, res, err)
			}
		}
	}
	if _, announced := (auth.Servers{cephx, none}).Modes(t.Context(), wire.Client, 7); !slices.Equal(announced, []auth.Mode{auth.Secure, auth.CRC}) {
		t.Errorf("announced for an unknown method: %v", announced)
	}
}

func TestClientsGoOnWhenAMethodIsRefused(t *testing.T) {
	noTicket := errors.New("no ticket")
	denied := &auth.Refused{Errno: auth.EACCES}
	const unknown = auth.Method(9)
	for _, c := range []struct {
		name     string
		list     []fake
		peerHas  []auth.Method
		result   int32
		want     auth.Method // 0: gives up
		wantErr  error
		startErr error
	}{
		{name: "the next has what the peer has", list: []fake{{method: auth.Cephx}, {method: auth.None}}, peerHas: []auth.Method{auth.None}, result: auth.EOPNOTSUPP, want: auth.None},
		{name: "the peer has neither", list: []fake{{method: auth.Cephx}, {method: auth.None}}, peerHas: []auth.Method{unknown}, result: auth.EOPNOTSUPP, wantErr: auth.ErrNoMethod},
		{name: "one in the middle is passed over", list: []fake{{method: auth.Cephx}, {method: unknown}, {method: auth.None}}, peerHas: []auth.Method{auth.None}, result: auth.EOPNOTSUPP, want: auth.None},
		{name: "a wrong key is no reason", list: []fake{{method: auth.Cephx, refuse: denied}, {method: auth.None}}, peerHas: []auth.Method{auth.Cephx, auth.None}, result: auth.EACCES, wantErr: denied},
		{name: "the only one", list: []fake{{method: auth.Cephx}}, peerHas: []auth.Method{auth.None}, result: auth.EOPNOTSUPP, wantErr: auth.ErrNoMethod},
		{name: "the next cannot start", list: []fake{{method: auth.Cephx}, {method: auth.None, startErr: noTicket}}, peerHas: []auth.Method{auth.None}, result: auth.EOPNOTSUPP, wantErr: noTicket},
		{name: "none can start", list: []fake{{method: auth.Cephx, startErr: noTicket}}, startErr: noTicket},
		{name: "no element", startErr: auth.ErrNoMethod},
	} {
		t.Run(c.name, func(t *testing.T) {
			var list auth.Clients
			wiped := make([]int, len(c.list))
			for i, f := range c.list {
				f.wiped = &wiped[i]
				list = append(list, dialler{f})
			}
			x, err := list.Start(t.Context(), wire.Mon)
			if c.startErr != nil {
				if !errors.Is(err, c.startErr) {
					t.Errorf("start: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			first, _, _, err := x.Request(t.Context())
			if err != nil || first != c.list[0].method {
				t.Fatalf("begins with %v, %v", first, err)
			}
			err = x.BadMethod(t.Context(), first, c.result, c.peerHas, nil)
			if c.want == 0 {
				if !errors.Is(err, c.wantErr) {
					t.Errorf("%v, want %v", err, c.wantErr)
				}
			} else {
				m, _, p, err2 := x.Request(t.Context())
				if err != nil || err2 != nil || m != c.want || string(p) != m.String() {
					t.Errorf("%v, then %v %q, %v", err, m, p, err2)
				}
				if res, err := x.Done(t.Context(), 1, auth.CRC, nil); err != nil || res.Method != c.want {
					t.Errorf("done by %+v, %v", res, err)
				}
			}
			x.(auth.Wiper).Wipe()
			for i, n := range wiped {
				if n > 1 || i == 0 && n != 1 {
					t.Errorf("element %d wiped %d times", i, n)
				}
			}
		})
	}
}

func TestClientsPassOverWhatCannotStart(t *testing.T) {
	n := 0
	x, err := auth.Clients{dialler{fake{method: auth.Cephx, startErr: errors.New("no ticket"), wiped: &n}}, dialler{fake{method: auth.None, wiped: &n}}}.Start(t.Context(), wire.OSD)
	if err != nil {
		t.Fatal(err)
	}
	if m, _, _, err := x.Request(t.Context()); err != nil || m != auth.None {
		t.Error(m, err)
	}
}

// A server that requires cephx of daemons and takes clients without proof.
func ExamplePerPeer() {
	cephx := fake{method: auth.Cephx} // cephx.NewServer
	none := fake{method: auth.None}   // none.NewServer
	server := &auth.PerPeer{
		Types:   map[wire.EntityType]auth.Server{wire.Client: auth.Servers{cephx, none}},
		Default: cephx,
	}
	ctx := context.Background()
	fmt.Println(server.Methods(ctx, wire.Client), server.Methods(ctx, wire.OSD))
	// Output: [cephx none] [cephx]
}
