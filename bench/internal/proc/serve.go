package proc

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Handler answers one request line.
type Handler func(request json.RawMessage) (result any, err error)

// Serve is the child's side: it writes hello as the first line, then answers
// the lines of in with handle, on the calling goroutine, until in closes.
// gone is called from another goroutine as soon as in closes, also while
// handle is busy: a child that has lost its parent should leave at once.
func Serve(in io.Reader, out io.Writer, hello any, handle Handler, gone func()) error {
	if err := write(out, hello, nil); err != nil {
		return err
	}
	lines := make(chan []byte)
	go func() {
		defer gone()
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	for line := range lines {
		result, err := handle(line)
		if err := write(out, result, err); err != nil {
			return err
		}
	}
	return nil
}

// Fail reports an error in the place of the hello of Serve.
func Fail(out io.Writer, err error) { _ = write(out, nil, err) }

// write sends one line.
func write(out io.Writer, result any, failure error) error {
	var r reply
	if failure != nil {
		r.Error = failure.Error()
	} else {
		p, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		r.Result = p
	}
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return errors.Join(errors.New("answer parent"), err)
	}
	return nil
}
