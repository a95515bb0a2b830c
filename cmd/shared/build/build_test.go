package build

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheVersionNamesTheCommit(t *testing.T) {
	b := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	b.Main.Version = "v1.2.3"
	i := Info{Version: "(devel)", Go: "go1.26", Platform: "linux/amd64"}
	if got := i.String(); !strings.HasPrefix(got, "(devel), commit not known (") || !strings.HasSuffix(got, ", go1.26 linux/amd64") {
		t.Error(got)
	}
	i.fill(b)
	if got := i.String(); got != "v1.2.3, commit 0123456789ab with changes, go1.26 linux/amd64" {
		t.Error(got)
	}
	i.Modified = false
	if got := i.Source(); got != "commit 0123456789ab" {
		t.Error(got)
	}
}

func TestThisProgramHasAVersion(t *testing.T) {
	if i := Read(); i.Version == "" || i.Go != runtime.Version() || i.Platform == "" {
		t.Errorf("%+v", i)
	}
}
