/* Answers like NVIDIA's management library: an RTX 4090 and two H100, linked by NVLink. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned int u;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { char legacy[16]; u domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { u version; int degrees; } margin_t;
typedef struct { u id, scope; long long timestamp, latency; int type, result; union { int i; double d; } value; } field_t;
static const char *names[] = { "NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3" };
static int told(const char *what, int otherwise) {   /* what a test writes into the file of that name */
    char path[4096]; int value = otherwise;
    snprintf(path, sizeof path, "%s/%s", FOLDER, what);
    FILE *file = fopen(path, "r");
    if (file) { if (fscanf(file, "%d", &value) != 1) value = otherwise; fclose(file); }
    return value;
}
static long at(void *device) { return (long) device - 1; }
int nvmlInit_v2(void) { return told("init", 0); }
int nvmlDeviceGetCount_v2(u *count) { *count = told("count", 3); return 0; }
int nvmlDeviceGetHandleByIndex_v2(u index, void **device) {
    *device = (void *) (long) (index + 1); return (int) index == told("lost", -1) ? 15 : 0;
}
int nvmlDeviceGetName(void *d, char *name, u size) { snprintf(name, size, "%s", names[at(d)]); return 0; }
int nvmlDeviceGetUUID(void *d, char *id, u size) { snprintf(id, size, "GPU-0000-%ld", at(d)); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) {
    m->total = (at(d) ? 80ull : 24ull) << 30; m->used = 1ull << 30; m->free = m->total - m->used; return told("memory", 0);
}
int nvmlDeviceGetPciInfo_v3(void *d, pci_t *p) { p->domain = 0; p->bus = 1 + at(d); p->device = 0; p->id = 0x233010de; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) {
    *major = at(d) ? 9 : 8; *minor = at(d) ? 0 : 9; return 0;
}
int nvmlDeviceGetTemperature(void *d, u sensor, u *c) { *c = told("temperature", 50) + (sensor == 0 ? 0 : 900); return 0; }
int nvmlDeviceGetTemperatureThreshold(void *d, u which, u *c) {
    if (which != 1) return 2;
    *c = 92; return at(d) == 2 ? 3 : 0;
}
int nvmlDeviceGetMarginTemperature(void *d, margin_t *m) {
    if (m->version != (sizeof *m | 1 << 24)) return 25;
    m->degrees = 87 - told("temperature", 50); return 0;
}
int nvmlDeviceGetFieldValues(void *d, int count, field_t *f) {
    if (count != 1 || f->id != 194) return 2;
    f->value.i = -2; f->result = 0; return 0;
}
int nvmlDeviceGetClockInfo(void *d, u type, u *mhz) { *mhz = type == 1 ? 1980 : type == 2 ? 2619 : 0; return 0; }
int nvmlDeviceGetPowerUsage(void *d, u *mw) { *mw = 310500; return at(d) ? 0 : 3; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *d, u *v) { *v = at(d) ? 5 : 4; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *d, u *v) { *v = 16; return 0; }
int nvmlDeviceGetMigMode(void *d, u *now, u *then) { *now = *then = told("mig", 0); return at(d) ? 0 : 3; }
int nvmlDeviceGetNvLinkState(void *d, u link, u *on) { *on = link < 4; return at(d) ? 0 : 3; }
int nvmlDeviceGetNvLinkVersion(void *d, u link, u *version) { *version = 6; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, u link, u *type) { *type = link < 3 ? 0 : 2; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, u link, pci_t *p) {
    p->domain = 0; p->bus = at(d) == 1 ? 3 : 2; p->device = 0; return 0;
}
