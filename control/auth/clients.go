package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Clients offers the method of its first element, and that of a later one only to an
// acceptor that does not have the former. An element that cannot start, such as a cephx
// client without a ticket for the peer, is passed over.
//
// The acceptor's word is all there is: whoever can pose as the acceptor can have the
// weakest element used. Do not add method none where peers have to prove themselves.
//
// The elements must be set before the first use, and not nil.
type Clients []Client

// Start implements [Client]. It fails if every element does, with all the reasons.
func (l Clients) Start(ctx context.Context, peer wire.EntityType) (ClientExchange, error) {
	x := &clientsExchange{rest: l, peer: peer}
	var errs []error
	for len(x.rest) > 0 {
		err := x.next(ctx)
		if err == nil {
			return x, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("%w: none configured", ErrNoMethod)
	}
	return nil, errors.Join(errs...)
}

// clientsExchange is the exchange of one element after the other.
type clientsExchange struct {
	ClientExchange
	rest Clients
	peer wire.EntityType
	made *request // what Request returns next, if it is known already
}

type request struct {
	method  Method
	modes   []Mode
	payload []byte
}

// next starts the exchange of the next element.
func (x *clientsExchange) next(ctx context.Context) error {
	c := x.rest[0]
	x.rest = x.rest[1:]
	e, err := c.Start(ctx, x.peer)
	if err != nil {
		return err
	}
	x.Wipe()
	x.ClientExchange = e
	return nil
}

// Request implements [ClientExchange].
func (x *clientsExchange) Request(ctx context.Context) (Method, []Mode, []byte, error) {
	if r := x.made; r != nil {
		x.made = nil
		return r.method, r.modes, r.payload, nil
	}
	return x.ClientExchange.Request(ctx)
}

// BadMethod implements [ClientExchange]: if the method itself was refused, the next
// element follows whose method the acceptor has.
func (x *clientsExchange) BadMethod(ctx context.Context, m Method, result int32, methods []Method, modes []Mode) error {
	err := x.ClientExchange.BadMethod(ctx, m, result, methods, modes)
	if err == nil || !errors.Is(err, ErrNoMethod) {
		return err
	}
	for len(x.rest) > 0 {
		if e := x.next(ctx); e != nil {
			err = errors.Join(err, e)
			continue
		}
		var r request
		var e error
		r.method, r.modes, r.payload, e = x.ClientExchange.Request(ctx)
		switch {
		case e != nil:
			err = errors.Join(err, e)
		case slices.Contains(methods, r.method):
			x.made = &r
			return nil
		}
	}
	return err
}

// Wipe implements [Wiper].
func (x *clientsExchange) Wipe() {
	if w, ok := x.ClientExchange.(Wiper); ok {
		w.Wipe()
	}
}
