package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/cluster/mon"
	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

// explain is err in words for the user, with the time that we waited, and the advice.
func (o *options) explain(err error) error {
	if err == nil || cli.IsUsage(err) {
		return err
	}
	text := plain(err)
	if todo := o.authAdvice(err); todo != "" {
		text = todo + ": " + text
	} else if advice := o.advice(err); advice != "" {
		text += ": " + advice
	}
	if errors.Is(err, context.DeadlineExceeded) {
		text += fmt.Sprintf("; gave up after %v (--timeout)", o.Timeout)
	}
	return errors.New(text)
}

// authAdvice is the remedy for an error of the authentication.
func (o *options) authAdvice(err error) string {
	switch {
	case !errors.Is(err, control.ErrAuth):
		return ""
	case o.keyFrom == "" && errors.Is(err, auth.ErrNoMethod) && o.sought != "":
		return "the cluster wants a key, give --keyring, as there is none in " + o.sought
	case o.keyFrom == "" && errors.Is(err, auth.ErrNoMethod):
		return "the cluster wants a key, give --keyring"
	case errors.Is(err, auth.ErrNoMethod):
		return "the cluster has no cephx, leave out --keyring"
	case errors.Is(err, auth.ErrNoMode):
		return "the cluster does not allow the modes of --mode"
	case errors.Is(err, cephx.ErrNoTicket):
		return "the monitors have renewed no ticket (ceph -s), or the clock of this machine was set in this moment"
	case errors.Is(err, &auth.Refused{Errno: auth.EACCES}) && errors.As(err, new(*rados.Error)):
		return fmt.Sprintf("the OSD does not let %s in, which has no caps of OSDs (ceph auth get %[1]s), or the clock of the OSD is wrong,"+
			" or it has not fetched the newest secret of the monitors", o.Name)
	case errors.Is(err, &auth.Refused{Errno: auth.EACCES}):
		return fmt.Sprintf("the cluster does not know %s with the key in %s, or it has no caps of monitors (ceph auth get %[1]s)",
			o.Name, o.keyFrom)
	}
	return ""
}

// advice names the first thing that an administrator should check.
func (o *options) advice(err error) string {
	ce, failed := errors.AsType[*control.Error](err)
	re, ofObject := errors.AsType[*rados.Error](err)
	// Silence is told alike, whether the messenger's patience ended first or ours.
	silent := ofObject && (re.Silent || errors.Is(err, control.ErrHandshakeTimeout))
	switch {
	case silent && errors.Is(err, rados.ErrUnknown):
		return "it is overloaded or frozen, the placement group of the object is not active, or a firewall drops the packets"
	case silent, errors.Is(err, mon.ErrNoAnswer):
		return "it is overloaded or frozen, or a firewall drops the packets"
	case failed:
		return ce.Advice()
	case errors.Is(err, syscall.EPERM), errors.As(err, new(*mon.CommandError)) && errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("ceph auth get %s shows the caps of the key", o.Name)
	}
	return ""
}

// plain is the text of an error without words for programmers: that a context has ended, and
// the packages and states on its way.
func plain(err error) string {
	if all, ok := err.(interface{ Unwrap() []error }); ok && fmt.Sprint(errors.Join(all.Unwrap()...)) == err.Error() {
		var parts []string // errors of several objects, or a context and the reason
		for _, one := range all.Unwrap() {
			parts = append(parts, plain(one))
		}
		return strings.Trim(strings.Join(parts, "; "), "; ")
	}
	words := []string{ // that are left out
		"rados: ", "", "mon: the", "the", "control: ", "", "dataplane: ", "", ", state connecting", "", "exchange banners: ", "",
	}
	if ce, ok := errors.AsType[*control.Error](err); ok {
		// The peer is named once.
		words = append(words, fmt.Sprintf("%s: peer %s", ce.Stage, ce.Peer), ce.Peer)
		if doing, _ := ce.Reason(); doing != "" {
			words = append(words, doing+": ", "")
		}
	}
	late := context.DeadlineExceeded.Error()
	text := strings.ReplaceAll(cli.OneLine(err), late+"; ", "") // the next error is the reason
	text = strings.NewReplacer(words...).Replace(strings.ReplaceAll(text, late, ""))
	for strings.Contains(text, ": : ") {
		text = strings.ReplaceAll(text, ": : ", ": ")
	}
	return strings.TrimRight(text, ":; ")
}
