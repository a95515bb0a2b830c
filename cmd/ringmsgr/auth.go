package main

import (
	"bufio"
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// authOptions are the flags about who we are and what protects a connection.
type authOptions struct {
	auth    string
	key     string
	keyring string
	// ticketLife is of tickets that we give out; 0: as real mons have it.
	ticketLife time.Duration
}

func (o *authOptions) register(fs *flag.FlagSet) {
	fs.StringVar(&o.auth, "auth", "none", "`METHOD` of authentication: none or cephx")
	fs.StringVar(&o.key, "key", "", "cephx: our secret key in `BASE64`, or - to read it from standard input")
	fs.StringVar(&o.keyring, "keyring", "", "cephx: `FILE` with our key; for serve, with those of all entities and of mon.")
}

// authenticate fills in the auth part of cfg, whose name and modes are set.
func (o *authOptions) authenticate(e env, cfg *control.Config) error {
	list := cfg.Modes
	method, err := auth.ParseMethod(o.auth)
	if err != nil || method != auth.None && method != auth.Cephx {
		return cli.Usagef("--auth %q: want none or cephx", o.auth)
	}
	if method == auth.None {
		if o.key != "" || o.keyring != "" {
			return cli.Usagef("--key and --keyring need --auth cephx")
		}
		if len(list) > 0 && !slices.Contains(list, auth.CRC) {
			return cli.Usagef("--mode secure needs --auth cephx: without a key there is nothing to encrypt with")
		}
		return nil
	}
	ring, err := o.readKeys(e, cfg.Name)
	if err != nil {
		return err
	}
	return o.cephx(cfg, ring)
}

// readKeys reads --key or --keyring.
func (o *authOptions) readKeys(e env, name wire.EntityName) (*cephx.Keyring, error) {
	switch {
	case o.key != "" && o.keyring != "":
		return nil, cli.Usagef("--key and --keyring exclude each other")
	case o.keyring != "":
		return flags.Keyring(o.keyring)
	case o.key == "":
		return nil, cli.Usagef("--auth cephx needs --key or --keyring")
	}
	text := o.key
	if text == "-" {
		line, err := bufio.NewReader(e.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, cli.Usagef("--key -: %w", err)
		}
		text = strings.TrimSpace(line)
	}
	key, err := cephx.ParseKey(text)
	if err != nil {
		return nil, cli.Usagef("--key: this is no secret key in base64, as keyrings have it")
	}
	ring := &cephx.Keyring{}
	if err := ring.Set(cephx.Entity{Name: keyName(name), Key: key}); err != nil {
		return nil, cli.Usagef("--key: %w", err)
	}
	return ring, nil
}

// keyName is the entity whose key we have: monitors share that of "mon.".
func keyName(name wire.EntityName) wire.EntityName {
	if name.Type == wire.Mon {
		return wire.EntityName{Type: wire.Mon}
	}
	return name
}

// cephx makes our ends of the authentication. Only a mon can accept on its
// own: other daemons get the secrets for that from a cluster.
func (o *authOptions) cephx(cfg *control.Config, ring *cephx.Keyring) error {
	own, ok := ring.Lookup(keyName(cfg.Name))
	if !ok {
		return cli.Usagef("--keyring %s has no key of %v", o.keyring, keyName(cfg.Name))
	}
	var offer func(wire.EntityType) []auth.Mode // nil: the defaults
	if list := cfg.Modes; len(list) > 0 {
		offer = func(wire.EntityType) []auth.Mode { return list }
	}
	var authority *cephx.Authority
	var err error
	if cfg.Name.Type == wire.Mon {
		if authority, err = cephx.NewAuthority(cephx.AuthorityConfig{Entities: ring, ServiceTTL: o.ticketLife}); err != nil {
			return cli.Usagef("--auth cephx: %w", err)
		}
		if cfg.AuthServer, err = cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority, Modes: offer}); err != nil {
			return cli.Usagef("--auth cephx: %w", err)
		}
	}
	client, err := cephx.NewClient(cephx.ClientConfig{Name: cfg.Name, Key: own.Key, Modes: offer, Authority: authority})
	if err != nil {
		return cli.Usagef("--auth cephx: %w", err)
	}
	cfg.AuthClient = client
	return nil
}

// accepts checks that we can authenticate who connects to us.
func (o *authOptions) accepts(cfg *control.Config) error {
	if o.auth == "cephx" && cfg.AuthServer == nil {
		return cli.Usagef("--name %v: it cannot accept with cephx on its own: a daemon gets the secrets for that from the monitors; "+
			"use --name mon.NAME with a keyring", cfg.Name)
	}
	return nil
}
