// Command gotool writes and reads logs of format 1.
//
// It is aolog's own second implementation of the format, in another
// language, for tests. It is NOT queuefka and contains none of its code; see
// ../README.md for why, and for what that means for the golden logs.
//
//	gotool write DIR SLABBYTES     payloads on stdin, one a line, in hex;
//	                               prints the address of each record
//	gotool read DIR ADDRESS        prints "ADDRESS HEX" a record, to the end
//	gotool sum                     prints the checksum of each line of hex
//
// Exit status: 0 well, 1 failed (disk, no such log), 2 wrong use,
// 3 the log is damaged (said on stderr, after the good records before it).
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

const headerBytes = 8 // length, then checksum; both uint32, little endian

var slabName = regexp.MustCompile(`^([0-9]{20})\.slab$`)

var errDamaged = errors.New("damaged log")
var errUsage = errors.New("usage: gotool write DIR SLABBYTES | read DIR ADDRESS | sum")

type slab struct {
	base uint64
	path string
	size uint64
}

// listSlabs gives the slabs of a log in the order of their addresses.
func listSlabs(dir string) ([]slab, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []slab
	for _, e := range entries {
		m := slabName.FindStringSubmatch(e.Name())
		if m == nil || !e.Type().IsRegular() {
			continue
		}
		base, err := strconv.ParseUint(m[1], 10, 64)
		if err != nil {
			return nil, err
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		found = append(found, slab{base, filepath.Join(dir, e.Name()), uint64(info.Size())})
	}
	sort.Slice(found, func(i, j int) bool { return found[i].base < found[j].base })
	return found, nil
}

func openSlab(dir string, base uint64) (*os.File, error) {
	name := filepath.Join(dir, fmt.Sprintf("%020d.slab", base))
	return os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// eachPayload calls f with each line of hex. An empty payload is refused:
// queuefka's checksum function panics on one.
func eachPayload(in io.Reader, f func([]byte) error) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF && line == "" {
			return nil
		}
		if err != nil && err != io.EOF {
			return err
		}
		payload, bad := hex.DecodeString(strings.TrimSpace(line))
		if bad != nil {
			return fmt.Errorf("%w: %v", errUsage, bad)
		}
		if len(payload) == 0 {
			return fmt.Errorf("%w: empty payload", errUsage)
		}
		if err := f(payload); err != nil {
			return err
		}
	}
}

func write(dir string, hint uint64, in io.Reader, out io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	slabs, err := listSlabs(dir)
	if err != nil {
		return err
	}
	var base, address uint64
	if n := len(slabs); n > 0 {
		// Append to the last slab as it stands: a torn tail is not looked at.
		base, address = slabs[n-1].base, slabs[n-1].base+slabs[n-1].size
	}
	file, err := openSlab(dir, base)
	if err != nil {
		return err
	}
	defer func() {
		if bad := file.Close(); err == nil {
			err = bad
		}
	}()
	return eachPayload(in, func(payload []byte) error {
		frame := make([]byte, headerBytes, headerBytes+len(payload))
		binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
		binary.LittleEndian.PutUint32(frame[4:], xxh32(payload))
		if _, err := file.Write(append(frame, payload...)); err != nil {
			return err
		}
		fmt.Fprintln(out, address)
		address += uint64(headerBytes + len(payload))
		if address-base <= hint {
			return nil
		}
		// Past the hint: the next slab is made at once, and may stay empty.
		next, err := openSlab(dir, address)
		if err != nil {
			return err
		}
		old := file
		file, base = next, address
		return old.Close()
	})
}

func damaged(address uint64, what string) error {
	return fmt.Errorf("%w: %s at %d", errDamaged, what, address)
}

func read(dir string, address uint64, out io.Writer) error {
	slabs, err := listSlabs(dir)
	if err != nil {
		return err
	}
	if len(slabs) == 0 {
		return errors.New("no slabs in " + dir)
	}
	last := slabs[len(slabs)-1]
	if address < slabs[0].base || address > last.base+last.size {
		return fmt.Errorf("address %d is out of bounds", address)
	}
	for _, s := range slabs {
		end := s.base + s.size
		if end <= address {
			continue
		}
		if address < s.base {
			return damaged(address, "gap")
		}
		data, err := os.ReadFile(s.path)
		if err != nil {
			return err
		}
		rest := data[address-s.base:]
		for len(rest) > 0 {
			if len(rest) < headerBytes {
				return damaged(address, "torn header")
			}
			length := uint64(binary.LittleEndian.Uint32(rest))
			sum := binary.LittleEndian.Uint32(rest[4:])
			if length > uint64(len(rest)-headerBytes) {
				return damaged(address, "torn payload")
			}
			payload := rest[headerBytes : headerBytes+length]
			if xxh32(payload) != sum {
				return damaged(address, "bad checksum")
			}
			fmt.Fprintf(out, "%d %x\n", address, payload)
			address += headerBytes + length
			rest = rest[headerBytes+length:]
		}
	}
	return nil
}

func run(args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 3 && (args[0] == "write" || args[0] == "read"):
		number, err := strconv.ParseUint(args[2], 10, 64)
		if err != nil {
			return fmt.Errorf("%w: %v", errUsage, err)
		}
		if args[0] == "write" {
			return write(args[1], number, in, out)
		}
		return read(args[1], number, out)
	case len(args) == 1 && args[0] == "sum":
		return eachPayload(in, func(payload []byte) error {
			fmt.Fprintf(out, "%08x\n", xxh32(payload))
			return nil
		})
	}
	return errUsage
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := run(os.Args[1:], os.Stdin, out)
	if bad := out.Flush(); err == nil {
		err = bad
	}
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "gotool:", err)
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case errors.Is(err, errDamaged):
		os.Exit(3)
	}
	os.Exit(1)
}
