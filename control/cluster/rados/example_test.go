package rados_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// exampleCluster is a monitor and an OSD in memory, which have the object "greeting" of pool "rep" alone.
func exampleCluster() (mons []wire.Addr, stop func()) {
	c, err := newCluster()
	if err == nil {
		_, err = c.startOSD("127.0.0.1:0")
	}
	if err != nil {
		panic(err)
	}
	return []wire.Addr{c.addr}, func() {
		if err := c.close(); err != nil {
			panic(err)
		}
	}
}

// What most programs do: connect, find a pool, write and read an object, change it in one step, and tell others of it. Errors
// are left out, where they would only be returned.
func Example() {
	mons, stop := exampleCluster() // in place of the addresses of real monitors
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := rados.Dial(ctx, rados.Config{Name: wire.EntityName{Type: wire.Client, ID: "admin"}, Mons: mons})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	pool, err := cluster.Pool(ctx, "rep")
	if err != nil {
		fmt.Println(err)
		return
	}

	greeting := pool.Object("greeting")
	err = greeting.WriteFull(ctx, []byte("hello, world"))
	fmt.Println("written:", err)
	p := make([]byte, 5)
	n, err := greeting.File(ctx).ReadAt(p, 7)
	fmt.Printf("read: %s %v\n", p[:n], err)

	var change rados.WriteOp
	change.Append([]byte("!"))
	change.SetXattr("language", []byte("en"))
	version, err := greeting.Operate(ctx, &change)
	fmt.Println("version", version, err)

	watch, err := greeting.Watch(ctx, 0, rados.Handler{
		Notified: func(n rados.Notification) []byte { return append([]byte("saw "), n.Payload...) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	answers, err := greeting.Notify(ctx, []byte("a change"), 0)
	for _, a := range answers {
		fmt.Printf("answer: %s\n", a.Data)
	}
	fmt.Println("all told:", err)
	fmt.Println("watch closed:", watch.Close(ctx))

	fmt.Println("removed:", greeting.Remove(ctx))
	_, err = greeting.Stat(ctx)
	fmt.Println("gone:", errors.Is(err, fs.ErrNotExist))
	// Output:
	// written: <nil>
	// read: world <nil>
	// version 2 <nil>
	// answer: saw a change
	// all told: <nil>
	// watch closed: <nil>
	// removed: <nil>
	// gone: true
}

// A client connects with its keyring, and looks at the cluster. It needs a cluster with keys: it is compiled, not run.
func ExampleDial() {
	f, err := os.Open("/etc/ceph/ceph.client.admin.keyring")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	ring, err := cephx.ReadKeyring(f)
	if err != nil {
		fmt.Println(err)
		return
	}
	admin := wire.EntityName{Type: wire.Client, ID: "admin"}
	self, ok := ring.Lookup(admin)
	if !ok {
		fmt.Println("no key of", admin)
		return
	}
	mon, err := wire.ParseAddr("v2:10.0.0.1:3300/0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster, err := rados.Dial(ctx, rados.Config{
		Name: admin, Key: self.Key, Mons: []wire.Addr{mon},
		Modes: []auth.Mode{auth.Secure}, // and nothing weaker
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()

	fmt.Println("monitors:", cluster.Mon().MonMap().Mons)
	status, err := cluster.Mon().Command(ctx, map[string]any{"prefix": "status", "format": "json"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("status: %s\n", status.Data)
	if err := cluster.WaitForLatestOSDMap(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("osdmap epoch:", cluster.Epoch())
}

// A compound operation checks and changes an object in one step. Each step of a read has its own result.
func ExampleObject_Operate() {
	update := func(ctx context.Context, o rados.Object) error {
		var look rados.ReadOp
		count, content := look.Xattr("count"), look.Read(0, 4096)
		version, err := o.Operate(ctx, &look)
		if err != nil {
			return err
		}
		fmt.Printf("%s of %d bytes\n", count.Value, len(content.Value))
		var change rados.WriteOp
		change.AssertVersion(version) // ERANGE: somebody was faster
		change.Append([]byte("more"))
		change.SetXattr("count", append(count.Value, '+'))
		_, err = o.Operate(ctx, &change)
		return err
	}
	_ = update // it needs a cluster
}
