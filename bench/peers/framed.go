// Command framed appends records in queuefka's format, or reads them. For each it does what queuefka's Write does: a
// lock, the xxh32 of the payload, and three writes into one buffer, of the length, the checksum and the payload; or
// its Read: a lock, three reads, the last into a payload of its own, and the xxh32 of this one. It is our
// own program for the bench, it contains none of queuefka's code, and it never begins another file. xxh32 is in
// tests/golden/queuefka/gotool.
//
//	framed VALUES COUNT LENGTH OUTPUT BUFFER write|flush
//	framed read BUFFER INPUT...
//
// VALUES: a file of COUNT values of LENGTH bytes each. BUFFER: its bytes; queuefka's has 4096. flush: after each
// record, otherwise at the end. It prints a line when it is ready, begins at a line on its input, and prints the
// number of records when all are written or read.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "framed:", err)
		os.Exit(1)
	}
}

func number(word string) int {
	found, err := strconv.Atoi(word)
	must(err)
	return found
}

type appender struct {
	sync.Mutex
	buffer *bufio.Writer
}

func (a *appender) write(payload []byte) {
	word := make([]byte, 4)
	a.Lock()
	defer a.Unlock()
	binary.LittleEndian.PutUint32(word, uint32(len(payload)))
	_, err := a.buffer.Write(word)
	must(err)
	binary.LittleEndian.PutUint32(word, xxh32(payload))
	_, err = a.buffer.Write(word)
	must(err)
	_, err = a.buffer.Write(payload)
	must(err)
}

type reader struct {
	sync.Mutex
	buffer *bufio.Reader
}

// Returns nil at the end.
func (r *reader) read() []byte {
	word := make([]byte, 8)
	r.Lock()
	defer r.Unlock()
	if _, err := io.ReadFull(r.buffer, word[:4]); err == io.EOF {
		return nil
	} else {
		must(err)
	}
	_, err := io.ReadFull(r.buffer, word[4:])
	must(err)
	payload := make([]byte, binary.LittleEndian.Uint32(word))
	_, err = io.ReadFull(r.buffer, payload)
	must(err)
	if xxh32(payload) != binary.LittleEndian.Uint32(word[4:]) {
		must(errors.New("a checksum does not match"))
	}
	return payload
}

func readAll(size int, paths []string) {
	fmt.Println("ready")
	fmt.Scanln()
	count := 0
	for _, path := range paths {
		file, err := os.Open(path)
		must(err)
		in := reader{buffer: bufio.NewReaderSize(file, size)}
		for payload := in.read(); payload != nil; payload = in.read() {
			count++
		}
		must(file.Close())
	}
	fmt.Println(count)
}

func main() {
	if os.Args[1] == "read" {
		readAll(number(os.Args[2]), os.Args[3:])
		return
	}
	values, err := os.ReadFile(os.Args[1])
	must(err)
	count, length, flush := number(os.Args[2]), number(os.Args[3]), os.Args[6] == "flush"
	file, err := os.Create(os.Args[4])
	must(err)
	out := appender{buffer: bufio.NewWriterSize(file, number(os.Args[5]))}
	fmt.Println("ready")
	fmt.Scanln()
	for i := 0; i < count; i++ {
		out.write(values[i*length : (i+1)*length])
		if flush {
			must(out.buffer.Flush())
		}
	}
	must(out.buffer.Flush())
	fmt.Println(count)
	must(file.Close())
}
