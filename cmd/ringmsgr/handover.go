package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/internal/scope"
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
	usr2   chan os.Signal // asks for a successor
}

func (o *succession) register(fs *flag.FlagSet) {
	fs.StringVar(&o.path, "handover", "", "`PATH` of a Unix socket to which a successor comes; SIGUSR2 starts one")
	fs.StringVar(&o.from, "take-over", "", "`PATH` of the --handover socket of a running serve, to continue it")
	fs.DurationVar(&o.linger, "linger", 10*time.Second, "`DURATION` that lossy connections may go on after a hand-over")
}

func (o *succession) check(key string) error {
	switch {
	case o.linger < 0:
		return cli.Usagef("--linger %v: want 0 or more", o.linger)
	case o.path != "" && key == "-":
		return cli.Usagef("--handover and --key - exclude each other: a successor could not read the key again")
	}
	return nil
}

// heed keeps a SIGUSR2 from now on, before there is anything to hand over, and
// returns what ends that.
func (o *succession) heed() (end func()) {
	o.usr2 = make(chan os.Signal, 1)
	if o.path != "" {
		signal.Notify(o.usr2, syscall.SIGUSR2)
	}
	return func() { signal.Stop(o.usr2) }
}

// takeOver continues the server at --take-over.
func (o *succession) takeOver(ctx context.Context, cfg control.Config, d *control.Dispatcher) (*control.Messenger, error) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", o.from)
	if err != nil {
		return nil, fmt.Errorf("--take-over %s: %s", o.from, scope.Cause(err))
	}
	defer c.Close()
	m, err := control.TakeOver(ctx, cfg, c.(*net.UnixConn), d)
	if err != nil {
		return nil, fmt.Errorf("--take-over %s: %w", o.from, err)
	}
	return m, nil
}

// successorListener is where successors come to.
type successorListener struct {
	o      *succession
	e      env
	m      *control.Messenger
	log    *slog.Logger
	l      net.Listener  // nil: none
	handed chan struct{} // closed when a successor has everything
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// offer waits for successors until close.
func (o *succession) offer(ctx context.Context, e env, m *control.Messenger, log *slog.Logger) (*successorListener, error) {
	t := &successorListener{o: o, e: e, m: m, log: log, handed: make(chan struct{})}
	ctx, t.stop = context.WithCancel(ctx)
	if o.path == "" {
		return t, nil
	}
	var err error
	if t.l, err = control.ListenPrivate(o.path); err != nil {
		return nil, fmt.Errorf("--handover %s: %s", o.path, scope.Cause(err))
	}
	t.all.Go(func() { t.accept(ctx) })
	t.all.Go(func() { t.spawn(ctx) })
	return t, nil
}

// close ends it. The path stays if it is a successor's by now.
func (t *successorListener) close() error {
	t.stop()
	var err error
	if t.l != nil {
		err = t.l.Close()
	}
	t.all.Wait()
	return err
}

// accept hands over to each process that connects, until a hand-over succeeds.
func (t *successorListener) accept(ctx context.Context) {
	for {
		c, err := t.l.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.log.Error("no more hand-overs", "err", err)
			}
			return
		}
		handCtx, cancel := context.WithTimeout(ctx, handOverTime)
		err = t.m.HandOver(handCtx, c.(*net.UnixConn))
		cancel()
		_ = c.Close()
		if err == nil {
			t.log.Info("handed over")
			close(t.handed)
			return
		}
		t.log.Warn("hand-over failed, serving on", "err", err)
	}
}

// spawn starts a successor for each signal, one at a time.
func (t *successorListener) spawn(ctx context.Context) {
	ended := make(chan error, 1)
	running := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.handed:
			return // the successor outlives us
		case err := <-ended:
			running = false
			t.log.Warn("successor ended", "err", err)
		case <-t.o.usr2:
			if running {
				continue
			}
			cmd := t.successor()
			if err := startDeaf(cmd); err != nil {
				t.log.Warn("successor not started", "err", err)
				continue
			}
			running = true
			go func() { ended <- cmd.Wait() }()
		}
	}
}

// successor is the program that is now where ours was when it began, so that an
// upgrade takes effect, else ours.
func (t *successorListener) successor() *exec.Cmd {
	exe, err := os.Executable()
	if _, e := os.Stat(exe); err != nil || e != nil {
		exe = "/proc/self/exe"
	}
	cmd := exec.Command(exe, successorArgs(os.Args[1:], t.o.path)...)
	cmd.Stdout, cmd.Stderr = t.e.stdout, t.e.stderr
	return cmd
}

// startDeaf starts a program with SIGUSR2 blocked. One that comes before the
// program listens for it, even before it has a handler, then waits for that,
// instead of killing it.
func startDeaf(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the mask is a thread's; the child gets that of ours
	defer runtime.UnlockOSThread()
	var usr2, before unix.Sigset_t
	usr2.Val[0] = 1 << (unix.SIGUSR2 - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &usr2, &before); err != nil {
		return fmt.Errorf("block SIGUSR2: %w", err)
	}
	return errors.Join(cmd.Start(), unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil))
}

// successorArgs are our arguments with another --take-over.
func successorArgs(args []string, path string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, value := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if name != "take-over" || !strings.HasPrefix(args[i], "-") {
			out = append(out, args[i])
		} else if !value {
			i++ // the value is the next one
		}
	}
	return append(slices.Clip(out), "--take-over="+path)
}

// lingerPoll is how often lingers looks.
const lingerPoll = 5 * time.Millisecond

// lingers waits until the lossy connections have ended, at most --linger.
func (o *succession) lingers(ctx context.Context, e env, m *control.Messenger) {
	end := e.now().Add(o.linger)
	poll := time.NewTicker(lingerPoll)
	defer poll.Stop()
	for e.now().Before(end) {
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
