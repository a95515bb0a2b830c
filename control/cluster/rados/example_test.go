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

	if err := cluster.Write(ctx, "data", "greeting", []byte("hello")); err != nil {
		fmt.Println(err)
		return
	}
	text, err := cluster.Read(ctx, "data", "greeting")
	fmt.Printf("read: %s %v\n", text, err)
	info, err := cluster.Stat(ctx, "data", "greeting")
	fmt.Println("size:", info.Size, err)
	fmt.Println("removed:", cluster.Remove(ctx, "data", "greeting"))
	_, err = cluster.Read(ctx, "data", "greeting")
	fmt.Println("gone:", errors.Is(err, fs.ErrNotExist))
}
