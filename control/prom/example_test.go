package prom_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"

	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/prom"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// The metrics of a messenger, at the address that Prometheus scrapes.
func ExampleHandler() {
	m, err := control.New(control.Config{Name: wire.EntityName{Type: wire.OSD, ID: "0"}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = m.Shutdown(context.Background()) }()

	mux := http.NewServeMux()
	mux.Handle("/metrics", prom.Handler(m))

	server := httptest.NewServer(mux)
	defer server.Close()
	answer, err := http.Get(server.URL + "/metrics")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	fmt.Println(answer.Status, string(regexp.MustCompile(`(?m)^ringmsgr_up.*\d`).Find(text)))
	// Output: 200 OK ringmsgr_up{messenger="osd.0"} 1
}
