package proc

import (
	"errors"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
)

// service is the name of a child's service.
const service = "Child"

// Serve is the child's side: it answers calls by the methods of a value, as package rpc has them,
// one after the other on the calling goroutine. One of them is Hello, which the parent calls first.
// When in closes the process ends, also while a method is busy: a child that has lost its parent
// leaves at once.
func Serve(in io.Reader, out io.Writer, methods any) error {
	s := rpc.NewServer()
	err := s.RegisterName(service, methods)
	r, w := io.Pipe()
	go func() {
		_, _ = io.Copy(w, in) // an error is the end, too
		os.Exit(0)
	}()
	for codec := jsonrpc.NewServerCodec(stream{r, out, r}); err == nil; {
		err = s.ServeRequest(codec)
	}
	return errors.Join(errors.New("serve the parent"), err)
}
