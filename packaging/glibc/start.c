/*
 * Where a program begins, as glibc 2.28 has it (crt1.o): up to 2.33 libc does not look for the program's constructors itself, but
 * calls a function of the program that does. A later libc calls that function as well. Compiled by scripts/old-glibc.
 */
typedef void initializer(int count, char **arguments, char **environment);

extern initializer *__init_array_start[] __attribute__((visibility("hidden")));
extern initializer *__init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void);

/* ld.so itself runs what stands in .preinit_array and the destructors of a dynamically linked program. */
__attribute__((visibility("hidden"))) void __libc_csu_init(int count, char **arguments, char **environment)
{
	_init();
	for (initializer **each = __init_array_start; each != __init_array_end; each++)
		(*each)(count, arguments, environment);
}

__attribute__((visibility("hidden"))) void __libc_csu_fini(void) {}

/* rdx: what to call at exit, from ld.so. The stack: the number of arguments, the arguments, the environment. */
__asm__(".text\n"
	".globl _start\n"
	".type _start, @function\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	xorl %ebp, %ebp\n"
	"	movq %rdx, %r9\n"
	"	popq %rsi\n"
	"	movq %rsp, %rdx\n"
	"	andq $-16, %rsp\n"
	"	pushq %rax\n"
	"	pushq %rsp\n"
	"	leaq __libc_csu_fini(%rip), %r8\n"
	"	leaq __libc_csu_init(%rip), %rcx\n"
	"	movq main@GOTPCREL(%rip), %rdi\n"
	"	call *__libc_start_main@GOTPCREL(%rip)\n"
	"	hlt\n"
	"	.cfi_endproc\n"
	".size _start, .-_start\n"
	".data\n"
	".globl data_start\n"
	".weak __data_start\n"
	"data_start:\n"
	"__data_start:\n"
	"	.long 0\n"
	".section .rodata\n"
	".globl _IO_stdin_used\n"
	".type _IO_stdin_used, @object\n"
	".size _IO_stdin_used, 4\n"
	"_IO_stdin_used:\n"
	"	.long 0x20001\n"
	".text\n");
