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

// A client connects with its keyring, looks at the cluster, and keeps an object
// in it. It needs a cluster: it is compiled, not run.
func Example() {
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
	status, err := cluster.Mon().Command(ctx, map[string]string{"prefix": "status", "format": "json"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("status: %s\n", status.Data)
	maps, err := cluster.Mon().OSDMap(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("osdmap epoch:", maps.Epoch())

	data, err := cluster.Pool(ctx, "data")
	if err != nil {
		fmt.Println(err)
		return
	}
	greeting := data.WithNamespace("examples").Object("greeting")
	if err := greeting.WriteFull(ctx, []byte("hello")); err != nil {
		fmt.Println(err)
		return
	}
	text, err := greeting.ReadAll(ctx)
	fmt.Printf("read: %s %v\n", text, err)
	fmt.Println("removed:", greeting.Remove(ctx))
	_, err = greeting.Stat(ctx)
	fmt.Println("gone:", errors.Is(err, fs.ErrNotExist))
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
