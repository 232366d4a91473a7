/* A program of XSched's interface without a HIP compiler: that it links, and that the library answers. */
#include <stdio.h>
#include "xsched/xsched.h"

int main(void)
{
	XQueueState state;
	XResult result = XQueueQuery(12345, &state);
	if (result == kXSchedSuccess)
		return 1;
	printf("linked: no such queue, result %d\n", (int)result);
	return 0;
}
