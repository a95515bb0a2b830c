//go:build !epoll && !giouring

package interop_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// Package cephx, which is the same in all builds, has tests of its own against a cluster that somebody gives
// them. Here is one.
func TestPackageCephxPassesAgainstARealCluster(t *testing.T) {
	enabled(t)
	t.Parallel()
	c := startCluster(t, clusterConfig{auth: "cephx", mode: "crc", osds: 1})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "Interop", "../auth/cephx")
	cmd.Env = append(os.Environ(), "RINGMSGR_INTEROP=1",
		"CEPH_CONF="+c.file("ceph.conf"), "CEPH_KEYRING="+c.file("keyring"), "MON_V2="+c.monAddr[0].AddrPort.String())
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v: %v\n%s", cmd, err, out)
	}
}
