package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// A cluster of 20.2 makes keys of kind aes256k for all, or for its services alone. Our client
// uses its objects in each mode, and another key of that kind does not let it in.
// Matrix: IN-01
func TestAES256KKeysOpenAClusterOfBothKinds(t *testing.T) {
	enabled(t)
	if major(t) < 20 {
		t.Skip("keys of kind aes256k came with release 20")
	}
	shareObjects(t, []clusterConfig{
		{auth: "cephx", mode: "crc", ciphers: "aes256k", osds: 1},
		{auth: "cephx", mode: "secure", ciphers: "aes256k", osds: 1},
		{auth: "cephx", mode: "crc", ciphers: "mixed", osds: 1},
	}, protocols[:1], refuseWrongKey)
}

func refuseWrongKey(t *testing.T, c *cluster) {
	t.Helper()
	name := wire.EntityName{Type: wire.Client, ID: "admin"}
	key, err := cephx.NewKey(cephx.AES256K, nil, time.Now())
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := rados.Dial(ctx, rados.Config{Name: name, Key: key, Mons: []wire.Addr{c.monAddr.V2()}})
	if err == nil {
		check(t, cl.Close())
	}
	if !errors.Is(err, control.ErrAuth) {
		t.Errorf("another key: %v, want %v", err, control.ErrAuth)
	}
}
