/*
 * Loaded into the guest's kernel (LD_PRELOAD) on processors with AMX. Linux takes a process's extended registers
 * (PTRACE_SETREGSET, NT_X86_XSTATE) only in the length that they have on this processor, and refuses shorter ones with
 * EFAULT; the guest's kernel knows them up to AVX-512. What it leaves out stays as it is.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { GETREGSET = 0x4204, SETREGSET = 0x4205 };

static long call(long request, pid_t pid, void *addr, void *data)
{
	return syscall(SYS_ptrace, request, pid, addr, data);
}

long ptrace(long request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *);
	void *data = va_arg(args, void *);
	va_end(args);

	/* PEEK: the library's function answers what the system call stores. */
	long read;
	if (request >= 1 && request <= 3) {
		if (call(request, pid, addr, &read) < 0)
			return -1;
		errno = 0;
		return read;
	}
	if (request != SETREGSET || addr != (void *)NT_X86_XSTATE)
		return call(request, pid, addr, data);

	static _Thread_local char whole[64 << 10] __attribute__((aligned(64)));
	struct iovec *known = data, all = { whole, sizeof whole };
	if (call(GETREGSET, pid, addr, &all) < 0 || known->iov_len > all.iov_len)
		return -1;
	memcpy(whole, known->iov_base, known->iov_len);
	return call(SETREGSET, pid, addr, &all);
}
