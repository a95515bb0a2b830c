//go:build !giouring

package interop_test

import (
	"bytes"
	"testing"

	"github.com/ringmsgr/ringmsgr/control/wire"
)

// Daemons that do not speak msgr2 at all, as ms_bind_msgr2 = false makes them.

// TestMsgr1DaemonsWithoutMsgr2 shares objects of every size with the real tool, on
// clusters whose monitor and OSD have v1 addresses alone: by the program, and by a
// client that loses its connections.
// Matrix: V1-12
func TestMsgr1DaemonsWithoutMsgr2(t *testing.T) {
	enabled(t)
	t.Parallel()
	program := buildProgram(t, "cephclient")
	for _, method := range []string{"none", "cephx"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterConfig{auth: method, mode: "crc", osds: 1, v1only: true})
			c.wantNoMsgr2()
			for _, backend := range backends {
				t.Run(string(backend), func(t *testing.T) {
					useMsgr1(t, c, backend)
					useProgram(t, c, program, backend, "--proto", "v1", "--mon", c.monAddr.V1().String())
				})
			}
			// Our client with msgr2 alone cannot connect.
			if out, err := tryTool(t, program, "--mon", c.monAddr.V1().WithType(wire.AddrMsgr2).String(), "--timeout", "2s", "monmap"); err == nil {
				t.Errorf("msgr2 is spoken: %s", out)
			}
		})
	}
}

// wantNoMsgr2 checks that no daemon has an address of msgr2.
func (c *cluster) wantNoMsgr2() {
	c.t.Helper()
	maps := append(c.ceph("mon", "dump", "--format", "json"), c.ceph("osd", "dump", "--format", "json")...)
	if bytes.Contains(maps, []byte(`"v2"`)) || bytes.Contains(maps, []byte(`v2:`)) || !bytes.Contains(maps, []byte(`"v1"`)) {
		c.t.Fatalf("there are addresses of msgr2, or none of msgr1: %s", maps)
	}
}
