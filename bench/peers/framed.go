// Command framed appends records in queuefka's format. For each it does what queuefka's Write does: a lock, the
// xxh32 of the payload, and three writes into one buffer, of the length, the checksum and the payload. It is our
// own program for the bench, it contains none of queuefka's code, and it never begins another file.
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
	"math/bits"
	"os"
	"strconv"
	"sync"
)

// Of the published specification of xxHash.
const p1, p2, p3, p4, p5 uint32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

func lane(acc uint32, data []byte) uint32 {
	return bits.RotateLeft32(acc+binary.LittleEndian.Uint32(data)*p2, 13) * p1
}

// xxh32 with seed 0.
func xxh32(data []byte) uint32 {
	total, acc := uint32(len(data)), p5
	if len(data) >= 16 {
		var zero uint32 // a variable: constants do not wrap around
		a, b, c, d := zero+p1+p2, zero+p2, zero, zero-p1
		for ; len(data) >= 16; data = data[16:] {
			a, b, c, d = lane(a, data), lane(b, data[4:]), lane(c, data[8:]), lane(d, data[12:])
		}
		acc = bits.RotateLeft32(a, 1) + bits.RotateLeft32(b, 7) + bits.RotateLeft32(c, 12) + bits.RotateLeft32(d, 18)
	}
	acc += total
	for ; len(data) >= 4; data = data[4:] {
		acc = bits.RotateLeft32(acc+binary.LittleEndian.Uint32(data)*p3, 17) * p4
	}
	for _, b := range data {
		acc = bits.RotateLeft32(acc+uint32(b)*p5, 11) * p1
	}
	acc = (acc ^ acc>>15) * p2
	acc = (acc ^ acc>>13) * p3
	return acc ^ acc>>16
}

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
