// Package interop holds tests against real Ceph daemons and tools, and nothing
// else. They start their own small clusters on loopback, in a network namespace that
// the tests of one process have for themselves: no other process has their ports.
//
// They run where RINGMSGR_INTEROP is 1 or CI is true, and need ceph-mon, ceph-osd,
// ceph-mgr, ceph-common, monmaptool and tcpdump in the path; where they are enabled and
// something is missing they fail. They build programs of cmd, whose modules must be there
// (go mod download). RINGMSGR_INTEROP_KEEP=1 keeps the daemons'
// directories, logs at debug ms = 20 included.
//
// ".ci/run long-interop" has the long forms: 20 000 operations beside librados
// (-librados.operations), and ten minutes of changes to a cluster under load (RINGMSGR_LONG=10m).
// ".ci/run list" has the command of each.
//
// All tests run with each release, which is that of the programs in the path:
// ".ci/run deps" installs 18.2 and 20.2 beside the one of the system. Where a release
// differs, a test asks for its number.
package interop
