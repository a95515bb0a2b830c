package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/ringmsgr/ringmsgr/control/cluster/rados"
)

func status(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	out, err := c.Mon().Command(ctx, map[string]string{"prefix": "status", "format": "json-pretty"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.stdout, "%s\n", out.Data)
	return err
}

func monmap(_ context.Context, e env, c *rados.Cluster, _ []string) error {
	return printJSON(e.stdout, c.Mon().MonMap())
}

func osdmap(ctx context.Context, e env, c *rados.Cluster, _ []string) error {
	m, err := c.Mon().OSDMap(ctx)
	if err != nil {
		return err
	}
	return printJSON(e.stdout, struct {
		Epoch uint32 `json:"epoch"`
		Bytes int    `json:"bytes"`
	}{m.Epoch(), len(m.Full[m.Epoch()])})
}

func put(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	var data []byte
	var err error
	if args[2] == "-" {
		data, err = io.ReadAll(e.stdin)
	} else {
		data, err = os.ReadFile(args[2])
	}
	if err != nil {
		return err
	}
	return c.Write(ctx, args[0], args[1], data)
}

func get(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	data, err := c.Read(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	if args[2] != "-" {
		return os.WriteFile(args[2], data, 0o666)
	}
	_, err = e.stdout.Write(data)
	return err
}

func stat(ctx context.Context, e env, c *rados.Cluster, args []string) error {
	i, err := c.Stat(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	return printJSON(e.stdout, i)
}

func remove(ctx context.Context, _ env, c *rados.Cluster, args []string) error {
	return c.Remove(ctx, args[0], args[1])
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
