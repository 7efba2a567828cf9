{{/* What the admission policies protect, in CEL, and where they are installed. */}}

{{/* Not empty where the policies are installed: from Kubernetes 1.30 on, unless values say otherwise. */}}
{{- define "gpushare.policies" -}}
{{- $enabled := toString .Values.admissionPolicy.enabled -}}
{{- $supported := semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- if and (eq $enabled "true") (not $supported) -}}
{{- fail (printf "admissionPolicy.enabled=true needs Kubernetes 1.30, which has ValidatingAdmissionPolicy; this is %s" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and $supported (ne $enabled "false") -}}true{{- end -}}
{{- end -}}

{{/* The annotations that record what a pod holds; the scheduler writes them with the Binding. */}}
{{- define "gpushare.allocationAnnotations" -}}
[
{{- range $index, $suffix := list "MEM_IDX" "MEM_DEV" "MEM_POD" "MEM_ASSIGNED" "MEM_ASSUME_TIME" "GROUP" "ASSIGNED" "ASSUME_TIME" }}
'{{ $.Values.annotationPrefix }}_GPU_{{ $suffix }}',
{{- end }}
'gpushare/unit',
'gpushare/exclusive',
'topology.kubernetes.io/gpu-group',
'topology.kubernetes.io/gpu-visible',
'scheduler.framework.gpushare.allocation',
'scheduler.framework.gpushare.assigned',
'scheduler.framework.gpushare.assume-time',
'gpushare.alibabacloud.com/gpumemory',
'gpushare.alibabacloud.com/core-percentage',
'gpushare.alibabacloud.com/assigned',
'gpushare.alibabacloud.com/assume-time'
]
{{- end -}}

{{/* Variables of a policy: annotations and labels before and after an update. */}}
{{- define "gpushare.metadataVariables" -}}
- name: after
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: before
  expression: "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
- name: labelsAfter
  expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
- name: labelsBefore
  expression: "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"
- name: statusAfter
  expression: "has(object.status) ? dyn(object.status) : dyn({})"
- name: statusBefore
  expression: "has(oldObject.status) ? dyn(oldObject.status) : dyn({})"
{{- end -}}

{{/*
An update changes no annotations but those in variables.annotations, as CEL. A loop over n entries takes
the API server time with the square of n, so that only a number of entries is compared that pods of
tenants do not exceed; a pod that is older than the policy may have more. The conditional, unlike `||`,
is lazy in every implementation of CEL.
*/}}
{{- define "gpushare.sameAnnotations" -}}
(variables.after == variables.before || variables.before.size() > {{ include "gpushare.comparedAnnotations" . }} ? true :
variables.after.size() > variables.before.size() + variables.annotations.size() ? false :
variables.after.all(key, key in variables.annotations ||
(key in variables.before && variables.before[key] == variables.after[key])) &&
variables.before.all(key, key in variables.annotations || key in variables.after))
{{- end -}}

{{/* Annotations that a user may give a pod, the stack's own not counted. */}}
{{- define "gpushare.mostAnnotations" -}}
500
{{- end -}}

{{/*
Whether a list of containers is short enough for loops over it, as CEL: a loop takes the API server time
with the square of the entries, which the pod's author counts. At most as many containers and entries of
env and envFrom as gpushare.mostContainers and gpushare.mostVariables.
*/}}
{{- define "gpushare.fewEntries" -}}
{{- $counted := "(has(c.env) ? c.env.size() : 0) + (has(c.envFrom) ? c.envFrom.size() : 0)" -}}
({{ . }}.size() > {{ include "gpushare.mostContainers" . }} ? false :{{ " " -}}
{{ . }}.map(c, {{ $counted }}).sum() <= {{ include "gpushare.mostVariables" . }})
{{- end -}}

{{- define "gpushare.mostContainers" -}}
1000
{{- end -}}

{{- define "gpushare.mostVariables" -}}
2000
{{- end -}}

{{/* Annotations that policies compare one by one: those of a user, and room for the stack's own. */}}
{{- define "gpushare.comparedAnnotations" -}}
600
{{- end -}}

{{/* An update leaves finalizers and owner references unchanged, as CEL. */}}
{{- define "gpushare.sameOwners" -}}
has(object.metadata.finalizers) == has(oldObject.metadata.finalizers) &&
(!has(object.metadata.finalizers) || object.metadata.finalizers == oldObject.metadata.finalizers) &&
has(object.metadata.ownerReferences) == has(oldObject.metadata.ownerReferences) &&
(!has(object.metadata.ownerReferences) || object.metadata.ownerReferences == oldObject.metadata.ownerReferences)
{{- end -}}

{{/* Variables that limit a container's share; a pod that requests GPUs must not set them. */}}
{{- define "gpushare.limitVariables" -}}
{{- list "CUDA_MPS_PIPE_DIRECTORY" "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" "CGPU_DISABLE" "NVIDIA_GPU_MEMORY_REQUEST" "NVIDIA_GPU_MEMORY_LIMIT" | toJson -}}
{{- end -}}

{{/* What a pod can request of GPUs, as a CEL list. */}}
{{- define "gpushare.requestedResources" -}}
{{- $found := list -}}
{{- range list "gpu-mem" "gpu-core.percentage" "gpu" -}}
{{- $found = append $found (printf "%s/%s" $.Values.resourceDomain .) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* A list of texts as CEL; the schema keeps quotes and backslashes out of them. */}}
{{- define "gpushare.celList" -}}
[{{- range $index, $item := . }}{{ if $index }}, {{ end }}'{{ $item }}'{{ end -}}]
{{- end -}}

{{/* Namespaces of the cluster's own software, whose pods may choose GPUs by environment. */}}
{{- define "gpushare.exemptNamespaces" -}}
{{- toJson (concat (list "kube-system" .Release.Namespace) .Values.admissionPolicy.exemptNamespaces | uniq) -}}
{{- end -}}

{{/*
The policy and its binding by which the account of a component changes one annotation of pods and
nothing else of them, which RBAC cannot express:
(list root "idle" "gpushare/idle-notice" "the job of idle shares" "Deny").
*/}}
{{- define "gpushare.oneAnnotation" -}}
{{- $root := index . 0 -}}
{{- $name := include "gpushare.name" (list $root (index . 1)) -}}
{{- $annotation := index . 2 -}}
{{- $subject := index . 3 -}}
{{- $labels := include "gpushare.labels" (list $root (index . 1)) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        resources: [pods]
        operations: [UPDATE]
  matchConditions:
    - name: the-job-itself
      expression: >-
        request.userInfo.username == 'system:serviceaccount:{{ $root.Release.Namespace }}:{{ $name }}'
  variables:
    - name: annotations
      expression: "['{{ $annotation }}']"
    {{- include "gpushare.metadataVariables" $root | nindent 4 }}
  validations:
    - expression: >-
        object.spec == oldObject.spec && variables.labelsAfter == variables.labelsBefore &&
        {{- include "gpushare.sameAnnotations" $root | nindent 8 }}
      message: {{ $subject }} changes nothing of a pod but the annotation {{ $annotation }}
      reason: Forbidden
    - expression: >-
        {{- include "gpushare.sameOwners" $root | nindent 8 }}
      message: {{ $subject }} changes no finalizers and no owner references
      reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [{{ index . 4 }}]
{{- end -}}
