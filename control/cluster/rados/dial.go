package rados

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/auth/none"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/wire"
	"github.com/ringmsgr/ringmsgr/dataplane/frame"
	"github.com/ringmsgr/ringmsgr/dataplane/loop"
	"github.com/ringmsgr/ringmsgr/dataplane/probe"
)

// Config of Dial.
type Config struct {
	// Name is the entity of the client, as client.admin.
	Name wire.EntityName
	// Key is the entity's secret key; the zero Key stands for method none.
	Key cephx.Key
	// Mons are addresses of monitors. If all are v1 addresses msgr1 is spoken.
	Mons []wire.Addr
	// Modes that connections may have, most preferred first; empty: the
	// defaults of the protocol. With only auth.Secure nothing weaker is used.
	Modes []auth.Mode
	// Rev0 talks msgr2.0.
	Rev0 bool
	// Compression to offer OSDs. Those of Ceph take it from OSDs alone: with a client's Name
	// nothing is compressed in either direction.
	Compression control.Compression
	// Plane configures the cores; zero: one core.
	Plane loop.Config
	Options
	// Tracer and KeyLog are those of control.Config; nil: none.
	Tracer probe.Tracer
	KeyLog io.Writer
}

// Dial connects to a cluster. Connections are checked every 10 s, and given up after 30 s.
func Dial(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Plane.Cores == 0 {
		cfg.Plane.Cores = 1
	}
	// OSDs and monitors do not know of bounds of ours: a larger answer would break the connection, each time that its
	// operation is sent again. By the defaults of OSDs a page of an omap has up to a gigabyte.
	limits := frame.DefaultLimits()
	limits.Front, limits.Data = math.MaxInt32, math.MaxInt32
	config := control.Config{
		Name: cfg.Name, Plane: cfg.Plane, Auth: control.Auth{Modes: cfg.Modes}, Logger: cfg.Logger,
		Protocol:    control.Protocol{Rev0: cfg.Rev0, Compression: cfg.Compression},
		Diagnostics: control.Diagnostics{Tracer: cfg.Tracer, KeyLog: cfg.KeyLog},
		Timeouts:    control.Timeouts{KeepaliveEvery: 10 * time.Second, Keepalive: 30 * time.Second},
		Receiving:   control.Receiving{Limits: limits},
	}
	var keys *cephx.Client
	unproven := none.NewClient(cfg.Name) // for method none
	number := unproven.GlobalID
	config.Auth.Client = unproven
	if !cfg.Key.IsZero() {
		var offer func(wire.EntityType) []auth.Mode
		if len(cfg.Modes) > 0 {
			offer = func(wire.EntityType) []auth.Mode { return cfg.Modes }
		}
		var err error
		if keys, err = cephx.NewClient(cephx.ClientConfig{Name: cfg.Name, Key: cfg.Key, Modes: offer}); err != nil {
			return nil, err
		}
		config.Auth.Client, number = keys, keys.GlobalID
	}
	monitors, err := mon.NewClient(mon.Config{Mons: cfg.Mons, Auth: keys, None: unproven, Logger: cfg.Logger})
	var m *control.Messenger
	if err == nil {
		m, err = control.New(config)
	}
	if err != nil {
		if keys != nil {
			keys.Wipe()
		}
		return nil, err
	}
	c := New(monitors, cfg.Options)
	c.m, c.keys, c.owned = m, keys, true
	if err = c.m.Start(monitors.Dispatcher(), c.Dispatcher()); err == nil {
		err = monitors.Open(ctx, c.m)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rados: connect as %v: %w", cfg.Name, err), c.Close())
	}
	c.number = number()
	c.Open(c.m)
	return c, nil
}

// Close ends all operations with ErrClosed. If Dial made the cluster it ends its messenger too, within 10 s,
// and wipes the keys. It waits for the handlers of watches: none of them may call it.
func (c *Cluster) Close() error {
	c.engine.Close()
	if !c.owned {
		return nil
	}
	c.mon.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := c.m.Shutdown(ctx)
	if c.keys != nil && err == nil {
		c.keys.Wipe()
	}
	return err
}
