/*
 * The part of the NVML binary interface this library answers: names, numbers and struct layouts.
 *
 * These are facts of the interface, checked against the ctypes declarations of nvidia-ml-py;
 * nothing here is meant for compiling other programs.
 */
#ifndef MOCKNVML_NVML_ABI_H
#define MOCKNVML_NVML_ABI_H

#include <stdint.h>

#define NVML_API __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* Handles are numbers in pointer clothing: never dereferenced, so no stale one can crash us. */
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;

enum {
    NVML_TOPOLOGY_INTERNAL = 0,
    NVML_TOPOLOGY_SINGLE = 10,
    NVML_TOPOLOGY_MULTIPLE = 20,
    NVML_TOPOLOGY_HOSTBRIDGE = 30,
    NVML_TOPOLOGY_NODE = 40,
    NVML_TOPOLOGY_SYSTEM = 50
};

enum {
    NVML_P2P_CAPS_INDEX_READ = 0,
    NVML_P2P_CAPS_INDEX_WRITE = 1,
    NVML_P2P_CAPS_INDEX_NVLINK = 2,
    NVML_P2P_CAPS_INDEX_ATOMICS = 3,
    NVML_P2P_CAPS_INDEX_PROP = 4,
    NVML_P2P_CAPS_INDEX_UNKNOWN = 5
};

enum {
    NVML_P2P_STATUS_OK = 0,
    NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED = 3,
    NVML_P2P_STATUS_NOT_SUPPORTED = 5
};

enum { NVML_NVLINK_MAX_LINKS = 36, NVML_NVLINK_CAP_COUNT = 6, NVML_NVLINK_CAP_SLI_BRIDGE = 4 };
enum { NVML_NVLINK_DEVICE_TYPE_GPU = 0, NVML_NVLINK_DEVICE_TYPE_SWITCH = 2 };
enum { NVML_AFFINITY_SCOPE_NODE = 0, NVML_AFFINITY_SCOPE_SOCKET = 1 };
enum {
    NVML_COMPUTEMODE_DEFAULT = 0,
    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3
};

#define NVML_EVENT_SINGLE_BIT_ECC 0x1ULL
#define NVML_EVENT_DOUBLE_BIT_ECC 0x2ULL
#define NVML_EVENT_XID_CRITICAL 0x8ULL

#define NVML_NO_INSTANCE 0xFFFFFFFFU

typedef struct {
    unsigned long long total, free, used; /* bytes */
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used; /* bytes */
} nvmlMemory_v2_t;

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device;
    unsigned int pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned int version;
    unsigned int domain, bus, device;
    unsigned int pciDeviceId, pciSubSystemId;
    unsigned int baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_t;

typedef struct {
    unsigned int gpu, memory; /* percent */
} nvmlUtilization_t;

typedef struct {
    unsigned int version, sensorType;
    int temperature; /* degrees Celsius */
} nvmlTemperature_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory; /* bytes */
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

/* As the first version of the calls fills it. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory; /* bytes */
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp; /* microseconds since the epoch */
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned int multiprocessorCount;
    unsigned int sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned int sharedJpegCount, sharedOfaCount;
    unsigned int gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

/* As the first version of the wait fills it. */
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
} nvmlEventData_v1_t;

typedef struct {
    unsigned long long total, free, used; /* bytes */
} nvmlBAR1Memory_t;

typedef struct {
    uint8_t clusterUuid[16];
    unsigned int status;
    uint32_t cliqueId;
    uint8_t state;
} nvmlGpuFabricInfo_t;

typedef struct {
    unsigned int version;
    uint8_t clusterUuid[16];
    unsigned int status;
    uint32_t cliqueId;
    uint8_t state;
    uint32_t healthMask;
    uint8_t healthSummary; /* absent from version 2 */
} nvmlGpuFabricInfoV_t;

/* What a caller asks of nvmlDeviceGetFieldValues, and the answer to it. */
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec; /* microseconds */
    unsigned int valueType;
    nvmlReturn_t nvmlReturn; /* of this field alone */
    union {
        unsigned int uiVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;

enum { NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230, NVML_VALUE_TYPE_UNSIGNED_INT = 1 };

/* What nvmlDeviceSetMemoryLimits_v1 takes; the name space is the path of a cgroup in sysfs. */
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit; /* bytes */
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit, currentUsed; /* bytes */
} nvmlGetMemoryLimits_v1_t;

#define NVML_DEVICE_MEMORY_LIMIT_MAX 0xFFFFFFFFFFFFFFFFULL

/* NVML spells a struct version as its size with the number in the top byte. */
#define NVML_MEMORY_V2 0x02000028U
#define NVML_PCI_INFO_EXT_V1 0x01000040U
#define NVML_TEMPERATURE_V1 0x0100000CU
#define NVML_FABRIC_V2 0x02000024U
#define NVML_FABRIC_V3 0x03000028U

_Static_assert(sizeof(nvmlMemory_v2_t) == 0x28, "nvmlMemory_v2_t");
_Static_assert(sizeof(nvmlPciInfo_t) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(nvmlPciInfoExt_t) == 0x40, "nvmlPciInfoExt_t");
_Static_assert(sizeof(nvmlTemperature_t) == 0x0C, "nvmlTemperature_t");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "nvmlProcessInfo_t");
_Static_assert(sizeof(nvmlEventData_t) == 32, "nvmlEventData_t");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16, "nvmlProcessInfo_v1_t");
_Static_assert(sizeof(nvmlEventData_v1_t) == 24, "nvmlEventData_v1_t");
_Static_assert(sizeof(nvmlFieldValue_t) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(nvmlBAR1Memory_t) == 24, "nvmlBAR1Memory_t");
_Static_assert(sizeof(nvmlSetMemoryLimits_v1_t) == 24, "nvmlSetMemoryLimits_v1_t");
_Static_assert(sizeof(nvmlGetMemoryLimits_v1_t) == 32, "nvmlGetMemoryLimits_v1_t");
_Static_assert(sizeof(nvmlGpuFabricInfo_t) == 28, "nvmlGpuFabricInfo_t");
_Static_assert(sizeof(nvmlGpuFabricInfoV_t) == 0x28, "nvmlGpuFabricInfoV_t");

#endif
