package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringmsgr/ringmsgr/bench/internal/proc"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// stormHello is the first line of a storm server.
type stormHello struct {
	Addr     wire.Addr         `json:"addr"`
	Settings map[string]string `json:"settings"`
	// Unsteered says why nothing steers the connections that were to be.
	Unsteered string `json:"unsteered,omitempty"`
}

// stormRequest is a line to a storm server.
type stormRequest struct {
	Cut bool `json:"cut,omitempty"` // cut every session at its next message
}

// stormStats answers every stormRequest.
type stormStats struct {
	At    time.Time `json:"at"`    // when the cut was ordered
	Moved uint64    `json:"moved"` // sessions so far that changed cores
	Cut   int64     `json:"cut"`   // sessions so far that were cut
	Open  int       `json:"open"`
}

// scissors cut connections at the next message that they receive.
type scissors struct {
	left atomic.Int64 // connections to be cut
	done atomic.Int64 // so far
	mu   sync.Mutex
	cut  map[*control.Conn]bool
}

func (s *scissors) arm(conns []*control.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = make(map[*control.Conn]bool, len(conns))
	for _, c := range conns {
		s.cut[c] = true
	}
	s.left.Store(int64(len(conns)))
}

// At implements probe.Probe.
func (s *scissors) At(_ context.Context, e probe.Event) error {
	if e.Step != probe.FrameRead || e.Tag != frame.TagMessage || s.left.Load() == 0 {
		return nil
	}
	c, _ := e.Conn.(*control.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cut[c] {
		return nil
	}
	delete(s.cut, c)
	s.left.Add(-1)
	s.done.Add(1)
	return probe.ErrReset
}

// serveStorm runs an echo server with sessions until stdin closes.
func serveStorm(mode, cores string, stdin io.Reader, stdout io.Writer, gone func()) error {
	n, err := strconv.Atoi(cores)
	if err != nil {
		return err
	}
	// Room for the threads that the cores block, and for the handshakes.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), n+2))
	cut := &scissors{}
	policy := control.StatefulServer()
	m, err := control.New(control.Config{
		Name: wire.EntityName{Type: wire.OSD, ID: "0"}, Default: &policy, Probe: cut, Steer: control.Steer(mode),
		HandshakeTimeout: stormPatience, // not what is measured
		Plane:            dataplane.Config{Cores: n},
	})
	if err != nil {
		return err
	}
	defer func() { _ = closeMessenger(m) }() // the process ends with it
	if err := m.Start(&control.Dispatcher{Fast: echo}); err != nil {
		return err
	}
	addrs, err := m.Bind(wire.Addr{Type: wire.AddrMsgr2, AddrPort: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		return err
	}
	st, err := m.Stats()
	if err != nil {
		return err
	}
	hello := stormHello{Addr: addrs[0], Settings: map[string]string{
		"backend": st.Backend, "steering": strings.Join(st.Steering.Rules, ","), "GOMAXPROCS": strconv.Itoa(runtime.GOMAXPROCS(0)),
	}}
	if s := &st.Steering; !s.Active && control.Steer(mode) != control.SteerNone {
		hello.Unsteered = s.Why
		if s.Missing != "" {
			hello.Unsteered = fmt.Sprintf("%s is missing (%s): %s", s.Missing, s.Why, s.Remedy)
		}
	}
	return proc.Serve(stdin, stdout, hello, func(line json.RawMessage) (any, error) {
		var req stormRequest
		if err := json.Unmarshal(line, &req); err != nil {
			return nil, err
		}
		return stormState(m, cut, req.Cut)
	}, gone)
}

func stormState(m *control.Messenger, cut *scissors, arm bool) (stormStats, error) {
	conns := m.Conns()
	s := stormStats{At: time.Now(), Open: len(conns)}
	if arm {
		if cut.left.Load() != 0 {
			return s, errors.New("sessions are still to be cut")
		}
		s.At = time.Now()
		cut.arm(conns)
	}
	st, err := m.Stats()
	for i := range st.Cores {
		s.Moved += st.Cores[i].MovedHere
	}
	s.Cut = cut.done.Load()
	return s, err
}
