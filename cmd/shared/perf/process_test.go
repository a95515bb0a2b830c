package perf

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringmsgr/ringmsgr/cmd/shared/clitest"
)

func TestTheCPUTimeIsThatOfTheProcess(t *testing.T) {
	pid := clitest.Sleeper(t)
	read := func(pid int) time.Duration {
		t.Helper()
		d, err := ReadCPU(pid)
		clitest.Must(t, err)
		return d
	}
	own, other := read(0), read(pid)
	for read(0)-own < 50*time.Millisecond { // it grows with the work of this process
	}
	if read(os.Getpid())-own < 50*time.Millisecond {
		t.Error("0 is not this process")
	}
	if more := read(pid) - other; more > 25*time.Millisecond {
		t.Errorf("a process that sleeps used %v", more)
	}
}

func TestTheMemoryIsThatOfTheProcess(t *testing.T) {
	const size = 64 << 20
	before, err := ReadMemory(0)
	clitest.Must(t, err)
	block := mapped(t, size)
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	after, err := ReadMemory(os.Getpid())
	clitest.Must(t, err)
	if grown := after.Resident - before.Resident; grown < size*9/10 || after.Peak < after.Resident {
		t.Errorf("%+v, then %+v", before, after)
	}
	small, err := ReadMemory(clitest.Sleeper(t))
	if err != nil || small.Resident == 0 || small.Resident >= after.Resident {
		t.Errorf("%+v, %v", small, err)
	}
}

// Matrix: ST-11
func TestLockedMemoryIsThatOfTheProcess(t *testing.T) {
	const size = 16 << 10 // any process may lock as much
	before, err := ReadMemory(0)
	clitest.Must(t, err)
	block := mapped(t, size)
	clitest.Must(t, unix.Mlock(block))
	if after, err := ReadMemory(0); err != nil || after.Locked-before.Locked != size {
		t.Errorf("%+v, then %+v, %v", before, after, err)
	}
}

func TestAProcessThatIsGoneIsAnError(t *testing.T) {
	const nobody = 1 << 27
	if _, err := ReadCPU(nobody); err == nil {
		t.Error("it has CPU time")
	}
	if _, err := ReadMemory(nobody); err == nil {
		t.Error("it has memory")
	}
}

func TestAStatusHasNumbers(t *testing.T) {
	s := status("Name:\tx\nVmRSS:\t   123 kB\nEmpty:\n")
	if s.number("VmRSS:") != 123 || s.number("Empty:") != 0 || s.number("None:") != 0 {
		t.Errorf("%d %d %d", s.number("VmRSS:"), s.number("Empty:"), s.number("None:"))
	}
}

// mapped is memory that is not from the heap, which may have pages to spare.
func mapped(t *testing.T, size int) []byte {
	t.Helper()
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	clitest.Must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(block) }) // the process ends with it
	return block
}
