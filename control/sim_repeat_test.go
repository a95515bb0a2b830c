//go:build !race

package control_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
)

func TestSimulationIsRepeatable(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := range uint64(20) {
		var hashes [2]uint64
		var traces [2]bytes.Buffer
		for i := range hashes {
			synctest.Test(t, func(t *testing.T) { hashes[i], _ = runSeed(t, 1000+seed, &traces[i]) })
		}
		if hashes[0] != hashes[1] || !bytes.Equal(traces[0].Bytes(), traces[1].Bytes()) {
			t.Fatalf("seed %d: two runs differ", 1000+seed)
		}
	}
}
