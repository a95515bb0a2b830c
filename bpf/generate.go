package bpf

// The compiled objects are committed, so that only a change of the C source
// needs a compiler: clang 14 as Debian 12 ships it. Other versions produce
// other bytes, and the test that compares them would fail. bpf2go has the
// version that go.mod pins. The hash tells a machine without that compiler
// that the objects belong to the source.

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -no-global-types -type addr -type addr_port -type policy -type counts steer steer.c -- -nostdinc -Wall -Wextra -Werror
//go:generate sh -c "sha256sum kernel.h steer.c > testdata/source.sha256"
