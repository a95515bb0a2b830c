//go:build mutants

package control

import "os"

// Bugs that the simulator must notice, one of them chosen by the environment;
// those of the data plane are in dataplane/internal/mutant.
var (
	// mutantIgnoreWait has nobody tell a peer to wait, in a race or during a replacement.
	mutantIgnoreWait = os.Getenv("RINGMSGR_MUTANT") == "ignore-wait"
	// mutantSilentReset does not tell the user that the peer lost the session.
	mutantSilentReset = os.Getenv("RINGMSGR_MUTANT") == "silent-reset"
)
