package bpf_test

import (
	"fmt"

	"github.com/ringmsgr/ringmsgr/bpf"
)

// A peer that wants core 5 of 8 binds a source port that says so.
func ExampleHintPort() {
	hints := bpf.PortRange{First: 61000, Last: 65535}
	for attempt := range 3 {
		port := bpf.HintPort(hints, 5, 8, attempt)
		fmt.Println(port, port%8)
	}
	// Output:
	// 61005 5
	// 61013 5
	// 61021 5
}
