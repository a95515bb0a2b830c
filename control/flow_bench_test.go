package control_test

import ()

// kept is the type of messages that a server never releases.
const kept = 7
