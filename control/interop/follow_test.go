//go:build !giouring

package interop_test

import (
	"context"
	"fmt"
	"testing"
)

// One client goes on while the map of the cluster changes below it: OSDs go out and come back,
// are weighted otherwise and marked down. It finds objects of replicated and erasure-coded pools.
func TestAClientFollowsTheMapOfACluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "none", mode: "crc", osds: 3})
	c.ceph("osd", "pool", "create", "two", "8", "8")
	c.ceph("osd", "pool", "set", "two", "size", "2")
	c.ceph("osd", "erasure-code-profile", "set", "profile", "k=2", "m=1", "crush-failure-domain=osd")
	c.ceph("osd", "pool", "create", "coded", "8", "8", "erasure", "profile")
	cl := dialCluster(t, c, "msgr2.1", backends[0])
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	use := func(what string, pools ...string) {
		for _, pool := range pools {
			p, err := cl.Pool(ctx, pool)
			check(t, err)
			for i := range 40 {
				o, text := p.Object(fmt.Sprintf("object %d", i)), what+pool
				if err := o.WriteFull(ctx, []byte(text)); err != nil {
					t.Fatalf("%s, pool %s: %v", what, pool, err)
				}
				if got, err := o.ReadAll(ctx); err != nil || string(got) != text {
					t.Fatalf("%s, pool %s: %q, %v", what, pool, got, err)
				}
			}
		}
	}
	use("at first", "data", "two", "coded")
	c.ceph("osd", "out", "0")
	use("osd.0 is out", "data", "two")
	c.ceph("osd", "in", "0")
	use("osd.0 is in", "data", "two", "coded")
	c.ceph("osd", "reweight", "1", "0.3")
	c.ceph("osd", "primary-affinity", "2", "0")
	use("other weights", "data", "two", "coded")
	c.ceph("osd", "down", "2") // it comes back by itself
	use("osd.2 was down", "data", "two", "coded")
	two, err := cl.Pool(ctx, "two")
	check(t, err)
	for i := range 40 {
		check(t, two.Object(fmt.Sprintf("object %d", i)).Remove(ctx))
	}
}
