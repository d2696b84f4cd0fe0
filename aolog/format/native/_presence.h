/* Presence: where a slab's file is, so that compiled code can look whether its name still leads to it. The twin is
 * `Presence` in aolog/storage/file.py. Only for _frames.h and _speed.c,
 * after Python.h.
 */
#ifndef AOLOG_PRESENCE_H
#define AOLOG_PRESENCE_H

#include <fcntl.h>
#include <sys/stat.h>
#ifdef STATX_INO
#include <sys/sysmacros.h>
#endif

typedef struct {
    int fd;        /* of the file */
    int directory; /* of the directory, a descriptor too */
    char name[32];
    unsigned long long inode, device;
} Presence;

/* Whether the name in the directory leads to this file, of this size or more; links are not followed. False also if
 * that cannot be found out. Asks for no times where it can: once they were asked for, Linux 6.13 updates them with
 * the next write, which costs more than this call. */
static inline int
name_leads_to(int directory, const char *name, unsigned long long inode, unsigned long long device,
              unsigned long long size)
{
#ifdef STATX_INO
    struct statx found;
    return statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_SIZE, &found) == 0 &&
           found.stx_ino == inode && found.stx_size >= size &&
           makedev(found.stx_dev_major, found.stx_dev_minor) == device;
#else
    struct stat found;
    return fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && (unsigned long long)found.st_ino == inode &&
           (unsigned long long)found.st_size >= size && (unsigned long long)found.st_dev == device;
#endif
}

#endif
