/* Writes blocks of a file one by one into another, and syncs each: what the kernel and the device take.
 *
 *     synced BLOCKS COUNT LENGTH OUTPUT
 *
 * BLOCKS: a file of COUNT blocks of LENGTH bytes each. It prints a line when it is ready, begins at a line on its
 * input, and prints the number of blocks when all are synced.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int
failed(const char *what)
{
    perror(what);
    return 1;
}

int
main(int words, char **args)
{
    if (words < 5)
        return failed("synced BLOCKS COUNT LENGTH OUTPUT");
    size_t count = (size_t)atol(args[2]), length = (size_t)atol(args[3]);
    char *blocks = malloc(count * length);
    FILE *given = fopen(args[1], "rb");
    if (blocks == NULL || given == NULL || fread(blocks, length, count, given) != count)
        return failed(args[1]);
    int fd = open(args[4], O_WRONLY | O_CREAT, 0666);
    if (fd < 0)
        return failed(args[4]);
    puts("ready");
    fflush(stdout);
    getchar();
    for (size_t i = 0; i < count; i++)
        if (write(fd, blocks + i * length, length) != (ssize_t)length || fdatasync(fd) < 0)
            return failed(args[4]);
    printf("%zu\n", count);
    return 0;
}
