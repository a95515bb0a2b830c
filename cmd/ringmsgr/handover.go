package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
)

// handOverTime bounds one hand-over, from the successor's first word.
const handOverTime = 30 * time.Second

// succession are the flags of a server that gives everything to its successor,
// and takes it from its predecessor.
type succession struct {
	path   string // where successors come to
	from   string // where the predecessor is
	linger time.Duration
}

func (o *succession) register(fs *pflag.FlagSet) {
	fs.StringVar(&o.path, "handover", "", "`PATH` of a Unix socket to which a successor comes, which is started with --take-over PATH")
	fs.StringVar(&o.from, "take-over", "", "`PATH` of the --handover socket of a running serve, to continue it")
	cli.DurationVar(fs, &o.linger, "linger", 10*time.Second, 0,
		"`DURATION` that lossy connections may go on after a hand-over")
}

func (o *succession) takeOver(ctx context.Context, cfg control.Config, d *control.Dispatcher) (*control.Messenger, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", o.from)
	if err != nil {
		return nil, fmt.Errorf("--take-over %s: %s", o.from, cli.Cause(err))
	}
	defer c.Close()
	m, err := control.TakeOver(ctx, cfg, c.(*net.UnixConn), d)
	if err != nil {
		return nil, fmt.Errorf("--take-over %s: %w", o.from, err)
	}
	return m, nil
}

// listens is an error if a successor, which is to listen at the path of a flag, could not: after the
// hand-over nobody would serve. A socket that is there is the predecessor's, and is replaced then.
func listens(flag, path string) error {
	if at, err := os.Lstat(path); path == "" || path == "auto" || err == nil && at.Mode().Type() == os.ModeSocket {
		return nil
	}
	l, err := control.ListenPrivate(path)
	if err != nil {
		return fmt.Errorf("%s %s: %s", flag, path, cli.Cause(err))
	}
	return l.Close()
}

// offer calls serve, and meanwhile waits at --handover for successors. handed is closed when one has
// everything: then the path is its own by now, and stays.
func (o *succession) offer(
	ctx context.Context, m *control.Messenger, log *slog.Logger, serve func(handed <-chan struct{}) error,
) error {
	handed := make(chan struct{})
	if o.path == "" {
		return serve(handed)
	}
	l, err := control.ListenPrivate(o.path)
	if err != nil {
		return fmt.Errorf("--handover %s: %s", o.path, cli.Cause(err))
	}
	ctx, stop := context.WithCancel(ctx)
	var accepts sync.WaitGroup
	accepts.Go(func() {
		if accept(ctx, l, m, log) {
			close(handed)
		}
	})
	err = serve(handed)
	stop()
	err = errors.Join(err, l.Close())
	accepts.Wait()
	return err
}

// acceptPause is the time between two attempts to accept, for example without a free descriptor.
const acceptPause = 100 * time.Millisecond

// accept hands over to each process that connects, until a hand-over succeeds. Without one it returns
// false, at the end of l.
func accept(ctx context.Context, l net.Listener, m *control.Messenger, log *slog.Logger) bool {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return false
			}
			log.Warn("no hand-over now", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
				return false
			}
			continue
		}
		handCtx, cancel := context.WithTimeout(ctx, handOverTime)
		err = m.HandOver(handCtx, c.(*net.UnixConn))
		cancel()
		_ = c.Close()
		if err == nil {
			log.Info("handed over")
			return true
		}
		log.Warn("hand-over failed, serving on", "err", err)
	}
}

// lingerPoll is the interval at which lingers looks.
const lingerPoll = 5 * time.Millisecond

// lingers waits until the lossy connections have ended, at most --linger.
func (o *succession) lingers(ctx context.Context, m *control.Messenger) {
	end := time.Now().Add(o.linger)
	poll := time.NewTicker(lingerPoll)
	defer poll.Stop()
	for time.Now().Before(end) {
		if st, err := m.Stats(); err != nil || st.Open+st.HalfOpen == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}
