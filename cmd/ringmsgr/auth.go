package main

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/ringmsgr/ringmsgr/cmd/internal/flags"
	"github.com/ringmsgr/ringmsgr/cmd/shared/cli"
	"github.com/ringmsgr/ringmsgr/control"
	"github.com/ringmsgr/ringmsgr/control/auth"
	"github.com/ringmsgr/ringmsgr/control/auth/cephx"
	"github.com/ringmsgr/ringmsgr/control/wire"
)

// authOptions are the flags of the authentication.
type authOptions struct {
	auth    string
	keyring string
	// ticketLife is of tickets that we give out; 0: as real mons have it.
	ticketLife time.Duration
	// kinds are the kinds of keys that may log in; the secrets that we make are of the first
	// kind.
	kinds cephx.Ciphers
}

func (o *authOptions) register(fs *pflag.FlagSet) {
	cli.ChoiceVar(fs, &o.auth, "auth", "none", "`METHOD` of authentication: none or cephx", "none", "cephx")
	fs.StringVar(&o.keyring, "keyring", "", "cephx: `FILE` with our key; for serve, with those of all entities and of mon.")
}

// authenticate sets cfg.Auth. Its name and modes are set.
func (o *authOptions) authenticate(cfg *control.Config) error {
	list := cfg.Auth.Modes
	switch {
	case o.auth == "none" && o.keyring != "":
		return cli.Usagef("--keyring needs --auth cephx")
	case o.auth == "none" && len(list) > 0 && !slices.Contains(list, auth.CRC):
		return cli.Usagef("--mode secure needs --auth cephx: without a key there is nothing to encrypt with")
	case o.auth == "none":
		return nil
	case o.keyring == "":
		return cli.Usagef("--auth cephx needs --keyring")
	}
	ring, err := flags.Keyring(o.keyring)
	if err != nil {
		return err
	}
	return o.cephx(cfg, ring)
}

// keyName is the entity whose key we have: monitors share the key of "mon.".
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
	if list := cfg.Auth.Modes; len(list) > 0 {
		offer = func(wire.EntityType) []auth.Mode { return list }
	}
	var authority *cephx.Authority
	var err error
	if cfg.Name.Type == wire.Mon {
		mon := cephx.AuthorityConfig{Entities: ring, Ciphers: o.kinds, ServiceTTL: o.ticketLife}
		if authority, err = cephx.NewAuthority(mon); err != nil {
			return cli.Usagef("--auth cephx: %w", err)
		}
		if cfg.Auth.Server, err = cephx.NewServer(cephx.ServerConfig{Own: wire.Mon, Authority: authority, Modes: offer}); err != nil {
			return cli.Usagef("--auth cephx: %w", err)
		}
	}
	client, err := cephx.NewClient(cephx.ClientConfig{Name: cfg.Name, Key: own.Key, Modes: offer, Authority: authority})
	if err != nil {
		return cli.Usagef("--auth cephx: %w", err)
	}
	cfg.Auth.Client = client
	return nil
}

// ciphers reads --ciphers.
func ciphers(text string) (c cephx.Ciphers, err error) {
	if c.Allowed, err = cli.List(cephx.ParseKind)(text); err != nil {
		return c, errors.New("want a list of aes256k and aes")
	}
	c.Service, c.Preferred = c.Allowed[0], c.Allowed[0]
	slices.Sort(c.Allowed)
	return c, nil
}

// accepts checks that we can authenticate accepted peers.
func (o *authOptions) accepts(cfg *control.Config) error {
	if o.auth == "cephx" && cfg.Auth.Server == nil {
		return cli.Usagef("--name %v: it cannot accept with cephx on its own: a daemon gets the secrets for that from the monitors; "+
			"use --name mon.NAME with a keyring", cfg.Name)
	}
	return nil
}
