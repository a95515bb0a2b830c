// Package faulty lets requests to a driver fail as the kernel lets them fail, for
// tests: with every error that it can give, too short, too late, and ended before
// their time.
//
// Table (table.go), and FileTable for requests on files (file.go), list what can go
// wrong: each request of a uring.Driver, each errno that the manual pages of the calls
// behind it list, and what must become of it. They are the program of the tests, which
// run every cell of them.
//
// Driver (driver.go) is a uring.Driver above another one, a real or a simulated one
// (dataplane/simnet). It asks a function of the test before each request and each
// answer, and keeps the contract of a driver whatever it changes: each operation
// has exactly one final completion, and memory belongs to the driver until then. Strike
// lets one request fail.
//
// What the kernel answers and a driver deals with itself, such as EINTR or a full
// queue, is not in Table: nobody above a driver sees it. FileTable has EINTR, EAGAIN and
// short transfers as well, which no driver passes on either: who relied on that would
// take half a block for a whole one.
package faulty
