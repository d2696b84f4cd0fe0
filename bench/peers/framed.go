// Command framed appends records in queuefka's format. For each it does what queuefka's Write does: a lock, the
// xxh32 of the payload, and three writes into one buffer, of the length, the checksum and the payload. It is our
// own program for the bench, it contains none of queuefka's code, and it never begins another file. xxh32 is in
// tests/golden/queuefka/gotool.
//
//	framed VALUES COUNT LENGTH OUTPUT BUFFER write|flush
//
// VALUES: a file of COUNT values of LENGTH bytes each. BUFFER: its bytes; queuefka's has 4096. flush: after each
// record, otherwise at the end. It prints a line when it is ready, begins at a line on its input, and prints the
// number of records when all are written.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
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

func main() {
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
