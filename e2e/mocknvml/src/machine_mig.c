/* "mig_device = ..." of a GPU: one device that MIG cut out of it. */
#include "sections.h"

#include <ctype.h>
#include <string.h>

/* Slices of "2g.10gb" are 2 and 2, of "1c.3g.20gb" 3 for the GPU and 1 for the compute instance. */
static bool read_profile(struct mig_device *mig)
{
    const char *digits = "0123456789";
    size_t length = strspn(mig->profile, digits);
    if (length != 1 || mig->profile[0] == '0')
        return false;
    mig->gpu_slices = mig->compute_slices = (unsigned int)(mig->profile[0] - '0');
    if (strncmp(mig->profile + 1, "c.", 2) == 0) {
        if (!isdigit((unsigned char)mig->profile[3]) || mig->profile[4] != 'g')
            return false;
        mig->gpu_slices = (unsigned int)(mig->profile[3] - '0');
        return true;
    }
    return strncmp(mig->profile + 1, "g.", 2) == 0;
}

static bool read_mig_part(const char *key, const char *value, struct mig_device *mig)
{
    if (strcmp(key, "uuid") == 0)
        return strncmp(value, "MIG-", 4) == 0 && text_is_uuid(value + 4) &&
               text_copy(value, mig->uuid, sizeof mig->uuid);
    if (strcmp(key, "gi") == 0)
        return text_number(value, 0, 255, &mig->gpu_instance);
    if (strcmp(key, "ci") == 0)
        return text_number(value, 0, 255, &mig->compute_instance);
    if (strcmp(key, "sm") == 0)
        return text_number(value, 1, 1024, &mig->multiprocessors);
    return strcmp(key, "memory_mib") == 0 && text_number(value, 1, 1U << 22, &mig->memory_mib);
}

bool mig_device_read(char *value, void *target)
{
    struct gpu *gpu = target;
    struct mig_device mig = {0};
    const char *profile = text_word(&value);
    if (gpu->mig_count == MAX_MIG_DEVICES || !profile ||
        !text_copy(profile, mig.profile, sizeof mig.profile) || !read_profile(&mig))
        return false;
    for (const char *key; (key = text_word(&value));) {
        const char *part = text_word(&value);
        if (!part || !read_mig_part(key, part, &mig))
            return false;
    }
    if (!*mig.uuid || !mig.memory_mib)
        return false;
    gpu->mig_devices[gpu->mig_count++] = mig;
    return true;
}
