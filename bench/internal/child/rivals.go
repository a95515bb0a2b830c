package child

// Rival is a server of the module bench/rivals, which has dependencies that the library's
// module does not have.
type Rival struct {
	Name  string
	About string
	// OwnClient says that the client is there, too, as the server speaks neither msgr nor
	// bare bytes.
	OwnClient bool
}

// Rivals lists the rivals that echo.
func Rivals() []Rival {
	return []Rival{
		{Name: "netpoll", About: "cloudwego/netpoll, a poller and a goroutine per busy connection, the same frames"},
		{Name: "grpc", About: "gRPC-go, a stream of bytes per connection, its own client, no TLS and no checksums", OwnClient: true},
	}
}
