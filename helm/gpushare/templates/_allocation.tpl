{{/* The annotations that say which card a pod holds, as a list of CEL. */}}

{{- define "gpushare.allocationAnnotations" -}}
[
{{- range $index, $suffix := list "MEM_IDX" "MEM_DEV" "MEM_POD" "MEM_ASSIGNED" "MEM_ASSUME_TIME" "GROUP" "ASSIGNED" "ASSUME_TIME" }}
'{{ $.Values.annotationPrefix }}_GPU_{{ $suffix }}',
{{- end }}
'scheduler.framework.gpushare.allocation',
'scheduler.framework.gpushare.assigned',
'scheduler.framework.gpushare.assume-time',
'gpushare.alibabacloud.com/gpumemory',
'gpushare.alibabacloud.com/core-percentage',
'gpushare.alibabacloud.com/assigned',
'gpushare.alibabacloud.com/assume-time'
]
{{- end -}}
