{{/* What the admission policies protect, as lists of CEL, and where they are installed. */}}

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
'scheduler.framework.gpushare.allocation',
'scheduler.framework.gpushare.assigned',
'scheduler.framework.gpushare.assume-time',
'gpushare.alibabacloud.com/gpumemory',
'gpushare.alibabacloud.com/core-percentage',
'gpushare.alibabacloud.com/assigned',
'gpushare.alibabacloud.com/assume-time'
]
{{- end -}}

{{/* A list of texts as CEL; the schema keeps quotes and backslashes out of them. */}}
{{- define "gpushare.celList" -}}
[{{- range $index, $item := . }}{{ if $index }}, {{ end }}'{{ $item }}'{{ end -}}]
{{- end -}}

{{/* Namespaces of the cluster's own software, whose pods may choose GPUs by environment. */}}
{{- define "gpushare.exemptNamespaces" -}}
{{- toJson (concat (list "kube-system" .Release.Namespace) .Values.admissionPolicy.exemptNamespaces | uniq) -}}
{{- end -}}
