package rados_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

const (
	idleEnv  = "RINGMSGR_BENCH_IDLE" // the monitor of a client that the benchmark has started
	idleOSDs = 1000
)

// The resident memory of a process that is a client alone: with a session to one OSD, and with idle sessions to a thousand, in MiB.
func BenchmarkIdleSessions(b *testing.B) {
	if at := os.Getenv(idleEnv); at != "" {
		check(b, idleClient(b.Context(), at))
		return
	}
	c, err := newCluster()
	check(b, err)
	c.most = idleOSDs
	b.Cleanup(func() { check(b, c.close()) })
	o, err := c.startOSD("0.0.0.0:0")
	check(b, err)
	o.content, c.osd = []byte(text), nil // it is told to the client at other addresses
	client := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^BenchmarkIdleSessions$", "-test.benchtime=1x")
	client.Env = append(os.Environ(), idleEnv+"="+c.addr.String())
	client.Stderr = os.Stderr
	asks, err := client.StdoutPipe()
	if err == nil {
		err = client.Start()
	}
	check(b, err)
	defer client.Wait()
	for lines := bufio.NewScanner(asks); lines.Scan(); {
		what, value, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil: // of the testing package
		case what == "osd": // each has an address of its own, and all are one messenger
			ip := netip.AddrFrom4([4]byte{127, 0, byte(int(n)/250 + 1), byte(int(n)%250 + 1)})
			c.mu.Lock()
			c.changeLocked(uint32(n), netip.AddrPortFrom(ip, o.addr.Port()))
			c.mu.Unlock()
		case what == "one", what == "all":
			b.ReportMetric(n/(1<<20), "MiB/"+what)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// idleClient makes a session to one OSD after the other, and prints its resident memory.
func idleClient(ctx context.Context, at string) error {
	mon, err := wire.ParseAddr(at)
	if err != nil {
		return err
	}
	cl, err := rados.Dial(ctx, rados.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Mons: []wire.Addr{mon}})
	if err != nil {
		return err
	}
	defer cl.Close()
	p, err := cl.Pool(ctx, pool)
	if err != nil {
		return err
	}
	for n := range idleOSDs {
		before := cl.Epoch()
		fmt.Printf("osd %d\n", n)
		for cl.Epoch() == before {
			runtime.Gosched()
		}
		if _, err := p.Object(object).ReadAll(ctx); err != nil {
			return err
		}
		if n == 0 {
			fmt.Printf("one %d\n", resident())
		}
	}
	if n := len(cl.Messenger().Conns()); n < idleOSDs {
		return fmt.Errorf("%d connections", n)
	}
	fmt.Printf("all %d\n", resident())
	return nil
}

// resident is the resident memory of this process at rest, in bytes.
func resident() int {
	debug.FreeOSMemory()
	var all, pages int
	text, _ := os.ReadFile("/proc/self/statm")
	_, _ = fmt.Sscan(string(text), &all, &pages) // 0: it is not known
	return pages * os.Getpagesize()
}
