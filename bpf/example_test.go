package bpf_test

import (
	"fmt"
	"net/netip"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// A peer that wants core 5 of 8 binds a source port that says so.
func ExampleHintPort() {
	hints, err := bpf.ProposeHintRange(8, bpf.PortRange{First: 32768, Last: 60999})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hints)
	for attempt := range 3 {
		port := bpf.HintPort(hints, 5, 8, attempt)
		fmt.Println(port, port%8)
	}
	// Output:
	// 61000-65535
	// 61005 5
	// 61013 5
	// 61021 5
}

// The model tells where a connection would go, without a kernel.
func ExampleModel_Decide() {
	m := bpf.Model{
		Policy: bpf.Policy{Rules: bpf.UseTable | bpf.UseCPU, Cores: 4},
		Addr:   map[netip.Addr]int{netip.MustParseAddr("192.0.2.7"): 2},
		Live:   []int{0, 1, 3}, // core 2 is drained
	}
	d := m.Decide(bpf.Connection{Peer: netip.MustParseAddrPort("192.0.2.7:50000"), CPU: 1})
	fmt.Println(d.Rule, d.Core, d.Missed)
	// Output: cpu 1 [{table_addr 2}]
}
