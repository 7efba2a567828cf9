{{/* Names and labels of every object. */}}

{{- define "gpushare.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of a component's objects: (list root "scheduler"). */}}
{{- define "gpushare.name" -}}
{{- printf "%s-%s" (include "gpushare.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* The same with the release's part shortened where a kind allows fewer characters: (list root "idle" 52). */}}
{{- define "gpushare.shortName" -}}
{{- $suffix := printf "-%s" (index . 1) -}}
{{- $room := sub (index . 2) (len $suffix) | int -}}
{{- include "gpushare.fullname" (index . 0) | trunc $room | trimSuffix "-" }}{{ $suffix }}
{{- end -}}

{{/* Name of a CronJob, which has room for the time that its Jobs append: (list root "idle"). */}}
{{- define "gpushare.cronName" -}}
{{- include "gpushare.shortName" (append . 52) -}}
{{- end -}}

{{/* Labels that choose a component's pods; they must never change: (list root "scheduler"). */}}
{{- define "gpushare.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of a component's objects: (list root "scheduler"). */}}
{{- define "gpushare.labels" -}}
{{- $root := index . 0 -}}
{{ include "gpushare.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}
