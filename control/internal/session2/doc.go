// Package session2 is a session of msgr2: the parts that package session leaves to the protocol.
//
// Where a behaviour lives:
//
//   - The frames: session.go.
//   - The connector's frames and the answers to them: connect.go.
//   - The acceptor's answers: the two tables in table.go, and the checks around them in
//     accept.go, which also has the take-over of a session by an accepted socket, and
//     the check of a claim to an address.
//
// A session has two cookies, one of each side. It is found by the peer's address and the client
// cookie.
//
// The scripts in testdata show these rules as given, event, actions and state; go test
// ./control/internal/session -rewrite brings them up to date.
package session2
