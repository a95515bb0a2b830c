// Package build says what a program was built from.
//
// It is shared by the programs and the benchmark of this module, and promises
// nothing to others.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Info is what a program was built from.
type Info struct {
	Version  string `json:"version"`            // of the module: a tag, a pseudo-version, or "(devel)"
	Commit   string `json:"commit,omitempty"`   // in full; empty if it is not known
	Modified bool   `json:"modified,omitempty"` // the commit is not all
	Go       string `json:"go"`                 // version of the toolchain
	Platform string `json:"platform"`           // such as linux/amd64
}

// Read returns what this program was built from.
func Read() Info {
	i := Info{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if b, ok := debug.ReadBuildInfo(); ok {
		i.fill(b)
	}
	return i
}

// fill takes what the toolchain has noted in the program.
func (i *Info) fill(b *debug.BuildInfo) {
	if b.Main.Version != "" {
		i.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
}

// Source is the commit in a few characters, and whether it was changed; empty if
// it is not known.
func (i Info) Source() string {
	switch {
	case i.Commit == "":
		return ""
	case i.Modified:
		return fmt.Sprintf("commit %.12s with changes", i.Commit)
	}
	return fmt.Sprintf("commit %.12s", i.Commit)
}

// String is one line for people.
func (i Info) String() string {
	source := i.Source()
	if source == "" {
		source = "commit not known (\"go build -buildvcs=true\" in a clone notes it)"
	}
	return i.Version + ", " + source + ", " + i.Go + " " + i.Platform
}
